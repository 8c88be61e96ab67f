"""GPUs on which a script computes, in its turns: NVML is recorded, and knows real processes."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import psutil
import pytest
from torch_stand_in import write_torch

from launch.errors import ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from planner.scripts.contender import ScriptContender
from planner.trials.contender import TrialFailedError
from probes.hardware import Gpu
from probes.node import probe
from tests.probes.recorded_nvml import RecordedNvml

TRAIN = """
import time
from torch.optim.optimizer import SGD
optimizer = SGD()
while True:
    time.sleep(0.01)
    optimizer.step()
"""


PLAN = Plan(strategy="script", node_batch=1, options={"own_settings": True})


def node_with_gpu():
    return replace(probe(quick=True), gpus=(Gpu(nvml_index=0, cuda_index=0, uuid="GPU-a"),))


class HotGpu(RecordedNvml):
    """A GPU that is too hot, on which all that we have started computes."""

    is_used = True

    def nvmlDeviceGetProcessUtilization(self, _, since_us):  # noqa: N802
        own = psutil.Process().children(recursive=True) if self.is_used else []
        return [SimpleNamespace(pid=one.pid, timeStamp=since_us + 1, smUtil=9) for one in own]


def test_heat_counts_in_the_turns_in_which_a_script_computes_on_the_gpu(tmp_path, monkeypatch):
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    nvml = HotGpu(HandleByUUID={"GPU-a": 0}, CurrentClocksEventReasons={0: 0x20})
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    node = node_with_gpu()
    program = Program.parse([sys.executable, "train.py"], cores=node.cpu.usable_cores)
    script = ScriptContender(
        PLAN, lambda one: RunningScript(program, one, node, folder=tmp_path), node
    )
    try:
        script.make_steps(2, time_limit_s=60.0)
        assert script.disturbance.slowed_gpus == 1
        nvml.is_used = False
        script.make_steps(2, time_limit_s=60.0)
        assert script.disturbance.slowed_gpus == 0
    finally:
        script.close()
    assert not nvml.is_open


def test_ctrl_c_while_nvml_is_loaded_leaves_no_script_behind(monkeypatch):
    class Slow(RecordedNvml):
        def nvmlInit(self):  # noqa: N802
            raise KeyboardInterrupt

    node, started = node_with_gpu(), []
    monkeypatch.setitem(sys.modules, "pynvml", Slow())
    with pytest.raises(KeyboardInterrupt):
        ScriptContender(PLAN, started.append, node)
    assert not started


def test_script_that_cannot_be_started_leaves_nvml(monkeypatch):
    def refuse(_):
        assert nvml.is_open
        raise ScriptRefusedError("there is no such program")

    node, nvml = node_with_gpu(), RecordedNvml(HandleByUUID={"GPU-a": 0})
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(TrialFailedError, match="no such program"):
        ScriptContender(PLAN, refuse, node)
    assert not nvml.is_open

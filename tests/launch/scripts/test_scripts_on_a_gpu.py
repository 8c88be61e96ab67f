"""Scripts on a GPU: when it is waited for, and graphs that hide steps, with a stand-in for it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.errors import ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from probes.hardware import Hardware

HEAD = """
import time, types
import torch
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader

number, captured = 0, -1
torch.cuda = types.SimpleNamespace(
    is_initialized=lambda: True,
    is_current_stream_capturing=lambda: number == captured,
    synchronize=lambda: print("waited at", number, flush=True),
)
optimizer = SGD()
def step():
    global number
    number += 1
    time.sleep(0.002 * number)
    optimizer.step()
"""
LIMIT_S = 120.0


def run(folder: Path, node: Hardware, source: str) -> RunningScript:
    write_torch(folder)
    (folder / "train.py").write_text(HEAD + source)
    program = Program.parse([sys.executable, "train.py"], cores=2)
    return RunningScript(program, Plan(strategy="script", node_batch=1), node, folder=folder)


GRAPH = """
captured = 4
for _ in range(4):
    step()
while True:
    for batch in DataLoader([8] * 64):
        pass  # graph.replay()
"""


def test_steps_that_a_graph_hides_after_its_warm_up_are_refused_with_the_reason(
    tmp_path, two_cores
):
    """As torch's own recipe has it; the line was that more time is needed."""
    with run(tmp_path, two_cores, GRAPH) as script:
        script.make_steps(3, time_limit_s=LIMIT_S)  # and the first of all, which has no begin
        with pytest.raises(
            ScriptRefusedError, match=r"\d+ batches read and no step .* seen after its first ones"
        ):
            script.make_steps(1, time_limit_s=1.0)
        waited = script.output_tail.splitlines()
    # The turn ended at the captured step: to wait there would break the capture.
    assert waited == ["waited at 1", "waited at 3"]


def test_a_gpu_is_waited_for_at_the_end_of_a_turn_alone_and_its_steps_have_the_mean_time(
    tmp_path, two_cores
):
    with run(tmp_path, two_cores, "while True: step()") as script:
        script.make_steps(2, time_limit_s=LIMIT_S)
        steps = script.make_steps(4, time_limit_s=LIMIT_S)
        waited = script.output_tail.splitlines()
    assert waited == ["waited at 1", "waited at 3", "waited at 7"]
    # They took longer and longer: 4 to 7 times 2 ms at least.
    assert len({step.time_s for step in steps}) == 1
    assert sum(step.time_s for step in steps) >= 0.002 * (4 + 5 + 6 + 7)

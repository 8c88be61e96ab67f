"""Last batches of an epoch, which may be smaller: they count with their samples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.plan import Plan
from launch.scripts.environment import SHIM
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from launch.scripts.shim import VARIABLE
from launch.scripts.step_counter import StepCounter
from planner.api.scripts.recording import rate_of
from planner.scripts.contender import ScriptContender
from probes.node import probe

TRAIN = """
import sys
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader

def read_ahead(loader):
    ready = None
    for batch in loader:
        if ready is not None:
            yield ready
        ready = batch
    yield ready

optimizer, loader = SGD(), DataLoader([32, 32, 32, 8])
for epoch in range(int(sys.argv[1])):
    for batch in read_ahead(loader) if sys.argv[2] == "ahead" else loader:
        optimizer.step()
"""


@pytest.fixture(params=["each", "ahead"])
def reading(request: pytest.FixtureRequest) -> str:
    """Whether a batch is read when it is needed, or one before, as Accelerate and Lightning do."""
    return str(request.param)


@pytest.fixture
def contender(reading: str, tmp_path: Path) -> Iterator[ScriptContender]:
    """A script whose epochs have batches of 32, 32, 32 and 8."""
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    node = probe(quick=True)
    words = [sys.executable, "train.py", "1000000", reading]
    program = Program.parse(words, cores=node.cpu.usable_cores)
    made = ScriptContender(
        Plan(strategy="script", node_batch=32, options={"own_settings": True}),
        lambda plan: RunningScript(program, plan, node, folder=tmp_path),
        node,
    )
    yield made
    made.close()


def test_steps_have_the_samples_that_were_read_and_each_turn_has_a_whole_one(contender):
    contender.make_steps(4, time_limit_s=120.0)
    turns = [contender.make_steps(1, time_limit_s=60.0) for _ in range(20)]
    assert all(32 in {step.samples for step in turn} for turn in turns)
    steps = [step for turn in turns for step in turn]
    samples = sum(step.samples for step in steps)
    # 104 samples in 4 steps, and less than an epoch at the ends.
    assert abs(samples - 26 * len(steps)) < 48


def test_launched_script_counts_what_it_reads(tmp_path, reading):
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    words = (sys.executable, "train.py", "5", reading)
    with StepCounter() as counter:
        subprocess.run(
            Program(arguments=words).with_shim(words, SHIM),
            env={**os.environ, VARIABLE: json.dumps(dict(counter.settings))},
            cwd=tmp_path,
            check=True,
        )
    counted = counter.result()
    assert counted is not None
    assert counted.samples == 32
    assert rate_of(counted, 32) == pytest.approx(3 * 104 / counted.time_s)  # after 8 steps

"""Last batches of an epoch, which may be smaller: they count with their samples."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from counted_scripts import run_counted
from torch_stand_in import write_torch

from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from launch.scripts.step_counter import CountedSteps
from planner.api.scripts.recording import rate_of
from planner.scripts.contender import ScriptContender
from planner.trials.contender import TrialFailedError
from probes.node import probe

HEAD = """
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader
optimizer = SGD()
"""

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

VALIDATION = """
    torch.is_grad_enabled = lambda: {}
    for batch in DataLoader([64]):
        pass
    torch.is_grad_enabled = lambda: True
"""


@pytest.fixture(params=["each", "ahead"])
def reading(request: pytest.FixtureRequest) -> str:
    """Whether a batch is read when it is needed, or one before, as Accelerate and Lightning do."""
    return str(request.param)


def contender_of(plan: Plan, reading: str, folder: Path) -> ScriptContender:
    """A script whose epochs have batches of 32, 32, 32 and 8, and a validation that has 64.

    It reads these where gradients are recorded, and was refused because its batch changes.
    """
    write_torch(folder)
    (folder / "train.py").write_text("import torch" + TRAIN + VALIDATION.format(True))
    node = probe(quick=True)
    words = [sys.executable, "train.py", "1000000", reading]
    program = Program.parse(words, cores=node.cpu.usable_cores)
    return ScriptContender(plan, lambda one: RunningScript(program, one, node, folder=folder), node)


@pytest.fixture
def contender(reading: str, tmp_path: Path) -> Iterator[ScriptContender]:
    plan = Plan(strategy="script", node_batch=32, options={"own_settings": True})
    made = contender_of(plan, reading, tmp_path)
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


def test_batch_that_another_placeholder_changes_is_refused_with_the_name_to_give_it(tmp_path):
    plan = Plan(strategy="script", node_batch=16, options={"bs": 16})
    made = contender_of(plan, "each", tmp_path)
    with pytest.raises(TrialFailedError) as raised:
        made.make_steps(4, time_limit_s=120.0)
    made.close()
    assert raised.value.reason == (
        "a step of 32 samples over 1 rank, and node_batch=16 by the plan: "
        "name the placeholder of its batch {batch}"
    )


def launch(folder: Path, source: str, *arguments: str) -> CountedSteps:
    write_torch(folder)
    (folder / "train.py").write_text(source)
    code, counted = run_counted(folder, "train.py", *arguments)
    assert code == 0
    assert counted is not None
    return counted


def test_launched_script_counts_what_it_reads(tmp_path, reading):
    counted = launch(tmp_path, TRAIN, "5", reading)
    assert counted.samples == 32
    assert rate_of(counted, 32) == pytest.approx(3 * 104 / counted.time_s)  # after 8 steps


@pytest.mark.parametrize("records", [False, True])
def test_step_that_a_validation_came_before_is_in_neither_samples_nor_time(
    tmp_path, reading, records
):
    counted = launch(tmp_path, "import torch" + TRAIN + VALIDATION.format(records), "5", reading)
    assert counted.counted == 3 * 3
    assert counted.whole_share == pytest.approx((32 + 32 + 8) / (3 * 32))


def test_batches_that_a_script_keeps_count_as_whole_ones(tmp_path):
    """A launch of ten epochs showed a tenth of its rate."""
    source = (
        HEAD
        + """
loader, kept = DataLoader([32] * 20), []
for epoch in range(10):
    batches = []
    for batch in kept or loader:
        batches.append(batch)
        optimizer.step()
    kept = batches
"""
    )
    counted = launch(tmp_path, source)
    assert counted.counted == 10 * 20 - 8
    assert counted.whole_share == pytest.approx(1.0)


def test_steps_of_many_sizes_count_with_what_was_read(tmp_path):
    source = (
        HEAD
        + """
for number, batch in enumerate(DataLoader([10, 20, 30, 40] * 10)):
    if number % 2:
        optimizer.step()
"""
    )
    counted = launch(tmp_path, source)
    assert counted.counted == 20 - 8
    read = 6 * (10 + 20) + 6 * (30 + 40)
    assert rate_of(counted, counted.samples or 0) == pytest.approx(read / counted.time_s)


def test_turn_whose_own_steps_are_made_outlives_a_time_limit_in_those_after(tmp_path):
    """Its extra step waited for a validation, and the plan was left out of the race."""
    rest = "    time.sleep(600 * (not os.path.exists(sys.argv[1])))\n"
    source = (
        "import os, sys, time"
        + HEAD
        + """
for epoch in range(1000000):
    for batch in DataLoader([32] * 9 + [8]):
        optimizer.step()
"""
        + rest
    )
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(source)
    node = probe(quick=True)
    been = tmp_path / "been"
    program = Program.parse([sys.executable, "train.py", str(been)], cores=node.cpu.usable_cores)
    contender = ScriptContender(
        Plan(strategy="script", node_batch=32, options={"own_settings": True}),
        lambda plan: RunningScript(program, plan, node, folder=tmp_path),
        node,
    )
    try:
        steps = [*contender.make_steps(4, time_limit_s=120.0)]
        while steps[-1].samples != 8:
            steps += contender.make_steps(1, time_limit_s=2.0)
        been.touch()
        after = contender.make_steps(4, time_limit_s=120.0)
    finally:
        contender.close()
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    assert len(after) >= 4
    assert after[0].step > len(steps) + 1, "it was started again, and warmed up"

"""Scripts with the real torch: steps, batches and samples are counted exactly."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from conftest import long

from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from probes.hardware import Hardware

FOLDER = Path(__file__).parents[3] / "bench" / "step_scripts"
STEPS = 12
LIMIT_S = 120.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def script(node: Hardware, *words: str, steps: int = STEPS) -> RunningScript:
    program = Program.parse([sys.executable, *words, str(steps)], cores=2)
    return RunningScript(program, Plan(strategy="script", node_batch=32), node, folder=FOLDER)


SPREAD = "optimizer SGD, 1 step per batch of 32 on each of 2 ranks"
KINDS = {
    "plain.py": ("optimizer SGD, 1 step per batch of 32", 32),
    "amp.py": ("optimizer SGD, 1 step per batch of 32", 32),
    "spawn.py": (SPREAD, 64),
    "with_accelerate.py": ("optimizer SGD, 1 step per batch of 32", 32),
    "with_lightning.py": ("optimizer SGD, 1 step per batch of 32", 32),
    "with_transformers.py": ("optimizer AdamW, 1 step per batch of 8", 8),
}
QUICK = "plain.py"
"""test_patches.py has mixed precision, and the next test two ranks; libraries take twice as long to
load as torch. Accumulation is in test_recognition.py, and with ranks that run in test_ranks.py of
tests/planner/scripts; rounds of several optimizers are there too, and in the last test."""


@pytest.mark.parametrize("file", [name if name == QUICK else long(name) for name in KINDS])
def test_every_step_of_a_whole_run_is_counted(file, two_cores):
    line, samples = KINDS[file]
    with script(two_cores, file) as running:
        run = running.finish(time_limit_s=LIMIT_S)
        assert str(running.recognised) == line
    assert len(run.steps) == STEPS - 1  # after the first
    # Libraries read a batch before they need it.
    looked_ahead = samples if file.startswith("with_") else 0
    read = sum(step.samples or 0 for step in run.steps)
    assert abs(read - samples * len(run.steps)) <= looked_ahead
    assert sum(step.time_s for step in run.steps) <= run.time_s


def count_stopped(pids: Iterable[int]) -> int:
    states = [Path(f"/proc/{pid}/stat").read_text() for pid in pids]
    return sum(state.rpartition(")")[2].split()[0] == "T" for state in states)


def test_ranks_stand_still_at_the_same_step_and_all_their_steps_are_counted(two_cores):
    with script(two_cores, *TORCHRUN, "ranks.py", steps=2 * STEPS) as running:
        made = running.make_steps(1, time_limit_s=LIMIT_S)
        assert str(running.recognised) == SPREAD
        for count in (3, 1, 4):
            steps = running.make_steps(count, time_limit_s=LIMIT_S)
            assert len(steps) == count
            made += steps
        give_up = time.monotonic() + LIMIT_S
        while count_stopped(running.pids) < 2:  # the ranks; torchrun itself goes on
            assert time.monotonic() < give_up
            time.sleep(0.02)  # a stopped process has to be scheduled before it stands still
        run = running.finish(time_limit_s=LIMIT_S)
    made += run.steps
    assert len(made) == 2 * STEPS - 1  # after the first
    assert {step.samples for step in made} == {64}
    assert sum(step.time_s for step in made) <= run.time_s


ODD = """
import torch
from torch.utils.data import DataLoader, TensorDataset

class Batch:
    def __init__(self, rows):
        self.inputs = torch.stack([row for (row,) in rows])
    @property
    def shape(self):
        raise NotImplementedError("ragged")

class Loader(DataLoader):
    def _get_iterator(self):
        return iter([self.collate_fn([self.dataset[0]] * 4) for _ in range(40)])

weight = torch.nn.Parameter(torch.ones(4, dtype=torch.complex64))
optimizer = torch.optim.SGD([weight], lr=0.01)
data = TensorDataset(torch.ones(160, 4))
for kind in (DataLoader, Loader):
    for batch in kind(data, batch_size=4, collate_fn=Batch):
        (batch.inputs * weight).sum().backward(torch.tensor(1j))
        optimizer.step()
"""


def test_objects_that_cannot_be_looked_at_do_not_end_a_training(tmp_path, two_cores):
    (tmp_path / "train.py").write_text(ODD)
    program = Program.parse([sys.executable, "train.py"], cores=2)
    plan = Plan(strategy="script", node_batch=1)
    with RunningScript(program, plan, two_cores, folder=tmp_path) as running:
        run = running.finish(time_limit_s=LIMIT_S)
    assert len(run.steps) == 2 * 40 - 1


SIZES = """
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

class Clipped(torch.optim.SGD):
    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_(self.param_groups[0]["params"], 1.0)
        return super().step(closure)

data = [(torch.ones(3, 8 + number, 8), {"boxes": number}) for number in range(7)]

def in_lists(rows):
    return tuple(zip(*rows))

def in_one(rows):
    return torch.cat([picture.flatten() for picture, _ in rows])

sampler = BatchSampler(SequentialSampler(data), 2, drop_last=False)
weight = torch.nn.Parameter(torch.ones(4))
torch.optim.SGD([weight], lr=0.01)  # from now on, SGD.step has hooks of its own
optimizer = Clipped([weight], lr=0.01)
for loader in (
    DataLoader(data, batch_size=2, collate_fn=in_lists),
    DataLoader(data, batch_sampler=sampler, collate_fn=in_lists),
    DataLoader(data, batch_size=2, collate_fn=in_one),
    DataLoader(data, batch_size=2, collate_fn=in_one, drop_last=True),
):
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            weight.sum().backward()
            optimizer.step()
"""


def test_samples_of_different_sizes_are_counted_and_a_step_that_calls_that_of_its_parent_is_one(
    tmp_path, two_cores
):
    """The story: colours or pixels of the first picture were samples, in a last batch at least.
    Torchvision's training of a detector was said not to follow {batch}. And torch calls its hooks
    for both steps, as of Horovod's optimizers: a script was said to be twice as fast as it is."""
    (tmp_path / "train.py").write_text(SIZES)
    program = Program.parse([sys.executable, "train.py"], cores=2)
    plan = Plan(strategy="script", node_batch=2)
    with RunningScript(program, plan, two_cores, folder=tmp_path) as running:
        run = running.finish(time_limit_s=LIMIT_S)
        assert str(running.recognised) == "optimizer Clipped, 1 step per batch of 2"
    assert [2, *(step.samples for step in run.steps)] == 6 * [2, 2, 2, 1] + 2 * [2, 2, 2]


@pytest.mark.long
def test_the_example_with_two_optimizers_has_one_step_of_both_per_batch(two_cores):
    program = Program.parse([sys.executable, "gan.py", "--steps", "12"], cores=2)
    plan = Plan(strategy="script", node_batch=32)
    folder = FOLDER.parents[1] / "examples"
    with RunningScript(program, plan, two_cores, folder=folder) as running:
        assert len(running.finish(time_limit_s=LIMIT_S).steps) == 12 - 1
        seen, said = running.recognised, running.output_tail
    assert re.fullmatch(r"step 12: loss \d\.\d{4}, of the generator \d\.\d{4}", said.strip())
    assert seen is not None
    assert (seen.optimizers, seen.whole_samples) == (("Adam", "Adam"), 32)
    assert len(seen.round) == 2

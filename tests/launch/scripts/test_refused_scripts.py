"""Scripts that make steps which cannot be compared with others: each is refused in one line."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from torch_stand_in import write_torch

from launch.errors import ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript

TRAIN = """
import os, sys
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader

kind, batch, workers, processes = sys.argv[1], *map(int, sys.argv[2:])
if kind == "apart":
    os.fork()
optimizers, data = [SGD()] + [SGD()] * (kind == "paces"), range(4096)

def train(batch, paces=(1, 0)):
    loader = DataLoader([batch] * (len(data) // batch))
    loader.dataset = data
    for number, _ in enumerate(loader):
        for optimizer, pace in zip(optimizers, paces):
            for _ in range(pace):
                optimizer.step()
        if kind in ("grows", "shrinks") and batch == 8 and number == 5:
            return

train({"fixed": 16}.get(kind, batch), {"paces": (2, 3)}.get(kind, (1, 0)))
train(batch // 2 if kind == "shrinks" else 2 * batch)
"""
PLAN = Plan(
    strategy="script", node_batch=8, threads_per_process=2, loader_workers=0, options={"batch": 8}
)
KINDS = [
    ("grows", PLAN, "batches of 8 and then of 16: its batch changes"),
    ("shrinks", PLAN, "batches of 8 and then of 4: its batch changes"),
    ("fixed", PLAN, "batch=8 and the script reads batches of 16: it does not follow {batch}"),
    ("workers", replace(PLAN, loader_workers=1), "workers=1 and its data loader has 0"),
    ("apart", PLAN, "2 processes make steps on their own, without torch.distributed"),
    ("paces", PLAN, "optimizers step at different paces, "),
    (
        "processes",
        replace(PLAN, processes=2, threads_per_process=1, node_batch=16),
        "processes=2 and 1 make steps: it does not follow {processes}",
    ),
]


def make_turns(script: RunningScript) -> None:
    # A process that is late has its first step in the turns of another: nearly all that there are.
    for _ in range(180):
        script.make_steps(4, time_limit_s=60.0)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "plan", "line"), KINDS, ids=[kind for kind, *_ in KINDS])
def test_steps_that_cannot_be_compared_are_refused_in_one_line(
    kind, plan, line, tmp_path, two_cores
):
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    words = [sys.executable, "train.py", kind, "{batch}", "{workers}", "{processes}"]
    program = Program.parse(words, cores=2, choices={"batch": (8,)})
    with (
        RunningScript(program, plan, two_cores, folder=tmp_path) as script,
        pytest.raises(ScriptRefusedError) as raised,
    ):
        make_turns(script)
    assert line in raised.value.reason
    assert "\n" not in raised.value.reason


ONE_THREAD = """
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(4096, 4))
for (inputs,) in torch.utils.data.DataLoader(data, batch_size=8):
    model(inputs).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.long
def test_script_that_sets_another_number_of_threads_is_refused_in_one_line(tmp_path, two_cores):
    (tmp_path / "train.py").write_text(ONE_THREAD)
    program = Program.parse([sys.executable, "train.py"], cores=2)
    with (
        RunningScript(program, replace(PLAN, options={}), two_cores, folder=tmp_path) as script,
        pytest.raises(ScriptRefusedError) as raised,
    ):
        script.make_steps(4, time_limit_s=60.0)
    assert "threads_per_process=2 and torch has 1" in raised.value.reason
    assert "\n" not in raised.value.reason

"""Patched scripts: their first losses are held against those of the script as it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.errors import ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from planner.api.scripts.tuning import ScriptTrials, TunedScript
from planner.cancellation import Cancellation
from planner.scripts.contender import ScriptContender
from planner.trials.contender import TrialFailedError
from probes.node import probe

TRAIN = """
import sys, torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.ones(1).expand(10_000_000, 8))
for (inputs,) in torch.utils.data.DataLoader(data, batch_size=int(sys.argv[1])):
    model(inputs).square().mean().backward()
    optimizer.step()
"""


def test_patched_script_with_other_losses_is_refused_with_both(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    node = probe(quick=True)
    words = [sys.executable, "train.py", "{batch}"]
    program = Program.parse(words, cores=node.cpu.usable_cores, choices={"batch": (32,)})
    contender = ScriptContender(
        Plan(strategy="script", node_batch=32, options={"batch": 32, "patch_autocast": "bf16"}),
        lambda plan: RunningScript(program, plan, node, folder=tmp_path),
        node,
        own_losses=(1000.0,),
    )
    with pytest.raises(TrialFailedError, match=r"loss .* in step 1 with autocast and 1000 without"):
        contender.make_steps(2, time_limit_s=120.0)
    contender.close()


def look(folder: Path, patch: str) -> bool:
    """Look at a script of which no loss is seen; tell whether losses can be compared."""
    write_torch(folder)
    (folder / "train.py").write_text(
        "from torch.optim.optimizer import SGD\noptimizer = SGD()\nwhile True: optimizer.step()\n"
    )
    node = probe(quick=True)
    program = Program.parse([sys.executable, "train.py"], cores=node.cpu.usable_cores)
    script = TunedScript(program=program, patches=(patch,))
    with ScriptTrials(script, node, Cancellation()) as trials:
        trials.look(120.0)
        return trials.has_losses


def test_patches_of_the_model_are_refused_where_no_loss_can_be_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScriptRefusedError, match=r"no finite loss .* leave --patch model out"):
        look(tmp_path, "model")


def test_patches_of_loaders_go_on_without_losses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not look(tmp_path, "loader")

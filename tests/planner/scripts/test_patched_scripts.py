"""Patched scripts: their first losses are held against those of the script as it is."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.errors import ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from planner.api.scripts.tuning import ScriptTrials, TunedScript
from planner.commands.scripts.tune import patch_warnings
from planner.trials.contender import TrialFailedError
from probes.node import probe


def look(folder: Path, patch: str) -> bool:
    """Look at a script of which no loss is seen; tell whether losses can be compared."""
    write_torch(folder)
    (folder / "train.py").write_text(
        "from torch.optim.optimizer import SGD\noptimizer = SGD()\nwhile True: optimizer.step()\n"
    )
    node = probe(quick=True)
    program = Program.parse([sys.executable, "train.py"], cores=node.cpu.usable_cores)
    script = TunedScript(program=program, patches=(patch,))
    with ScriptTrials(script, node) as trials:
        trials.look(120.0)
        return trials.has_losses


def test_patches_of_the_model_are_refused_where_no_loss_can_be_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ScriptRefusedError, match=r"no finite loss .* leave --patch model out"):
        look(tmp_path, "model")


def test_patches_of_loaders_go_on_without_losses(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert not look(tmp_path, "loader")


OWN_LOSS = """
import sys
from torch._tensor import Tensor
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader
optimizer = SGD()
while True:
    for _ in DataLoader([4] * 8):
        is_patched = bool(sys.modules["_ddlplan_patches"].applied)
        Tensor(float(sys.argv[1]) + is_patched).backward()
        optimizer.step()
"""


def test_other_losses_are_refused_with_both_and_those_of_another_training_not_compared(
    tmp_path, monkeypatch
):
    """With another {lr} and the same batch, they were, and the trial was refused."""
    monkeypatch.chdir(tmp_path)
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(OWN_LOSS)
    node = probe(quick=True)
    words = [sys.executable, "train.py", "{lr}"]
    program = Program.parse(words, cores=node.cpu.usable_cores, choices={"lr": (1.0, 9.0)})
    script = TunedScript(program=program, patches=("loader",))
    with ScriptTrials(script, node) as trials:
        plans, _ = trials.look(120.0)
        for rate in (1.0, 9.0):
            options = {"lr": rate, "patch_pin_memory": True}
            plan = Plan(strategy="script", node_batch=plans.samples, options=options)
            contender = trials.start(plan)
            try:
                if rate == 9.0:
                    assert contender.make_steps(1, time_limit_s=120.0)
                    continue
                line = "loss 2 in step 1 with pin_memory and 1 without"
                with pytest.raises(TrialFailedError, match=line):
                    contender.make_steps(1, time_limit_s=120.0)
            finally:
                contender.close()


def test_plan_whose_losses_were_not_compared_is_warned_of():
    words = ["python", "train.py", "{batch}", "{workers}", "{threads}"]
    program = Program.parse(words, cores=2, choices={"batch": (32, 64)})
    own = Plan(strategy="script", node_batch=32, options={"batch": 32})
    assert patch_warnings(program, own) == []
    plan = replace(own, loader_workers=1, options={"batch": 32, "patch_compile": True})
    [changes] = patch_warnings(program, plan)
    assert "changes the script itself (compile)" in changes
    plan = replace(plan, node_batch=64, options={"batch": 64, "patch_compile": True})
    _, warning = patch_warnings(program, plan)
    assert "and batch=64 is not known: losses are compared at" in warning

"""Trials with ``--in-place``: what the script writes stays in the folder of the user."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.scripts.program import Program
from planner.api.scripts.tuning import ScriptTrials, TunedScript
from probes.node import probe

TRAIN = """
from torch.optim.optimizer import SGD
optimizer = SGD()
open("written", "w").close()
while True:
    optimizer.step()
"""


@pytest.mark.parametrize("is_python", [True, False])
def test_trial_in_place_writes_into_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_python: bool
):
    monkeypatch.chdir(tmp_path)
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    node = probe(quick=True)
    words = [sys.executable, "train.py"] if is_python else ["touch", "written"]
    program = Program.parse(words, cores=node.cpu.usable_cores, is_python=is_python)
    with ScriptTrials(TunedScript(program=program, in_place=True), node) as trials:
        plans, _ = trials.look(120.0)
        contender = trials.start(plans.defaults_plan)
        try:
            contender.make_steps(1, time_limit_s=60.0)
        finally:
            contender.close()
    assert (tmp_path / "written").exists()

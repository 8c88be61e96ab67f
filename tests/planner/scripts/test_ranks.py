"""Rates of scripts of several processes: samples of a step are size, accumulation and ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.scripts.program import Program
from planner.api.scripts.tuning import ScriptTrials, TunedScript
from probes.node import probe

pytestmark = pytest.mark.long  # six starts of a script with all its ranks

TORCHRUN = """
import os, subprocess, sys

at = sys.argv.index("--nproc-per-node")
count, words = int(sys.argv[at + 1]), [sys.executable, *sys.argv[at + 2 :]]
places = [{"RANK": str(rank), "WORLD_SIZE": str(count)} for rank in range(count)]
ranks = [subprocess.Popen(words, env={**os.environ, **place}) for place in places]
sys.exit(max([rank.wait() for rank in ranks]))
"""
"""Stands for it as the stand-in for torch does: a start with the real ones takes ten seconds."""

RANKS = """
import os, sys
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader

batch = int(sys.argv[1]) // (int(os.environ["WORLD_SIZE"]) if sys.argv[2] == "split" else 1)
optimizer = SGD()
if sys.argv[2] == "first":  # Accelerate reads an iterable data set so
    batches = iter(DataLoader([batch] * 1_000_000))
    while True:
        if os.environ["RANK"] == "0":
            for _ in range(2 * int(os.environ["WORLD_SIZE"])):
                next(batches)
        optimizer.step()
for number, _ in enumerate(DataLoader([batch] * 1_000_000)):
    if number % 2:  # two batches are accumulated
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("kind", "of_one", "of_two"),
    [
        ("each", 2 * 32, 2 * 2 * 32),
        ("split", 2 * 32, 2 * 32),
        ("first", 2 * 32, 2 * 2 * 32),
    ],
)
def test_samples_of_a_step_are_those_that_its_ranks_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, of_one: int, of_two: int
):
    write_torch(tmp_path)
    distributed = tmp_path / "torch" / "distributed"
    distributed.mkdir()
    (distributed / "__init__.py").touch()
    (distributed / "run.py").write_text(TORCHRUN)
    (tmp_path / "ranks.py").write_text(RANKS)
    monkeypatch.chdir(tmp_path)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone")
    node = probe(quick=True)
    program = Program.parse(
        [*torchrun, "--nproc-per-node", "{processes}", "ranks.py", "{batch}", kind],
        cores=node.cpu.usable_cores,
        choices={"batch": (32, 64), "processes": (1, 2)},
    )
    with ScriptTrials(TunedScript(program=program), node) as trials:
        plans, line = trials.look(120.0)
        assert line == "optimizer SGD, 1 step per 2 batches of 32"
        assert plans.defaults_plan.node_batch == of_one

        class Trial:
            def suggest_categorical(self, name, choices):
                return {**guess, "script.layout": "2x1"}[name]

        guess, *_ = plans.first_guesses(None, node)
        two = plans.suggest(Trial(), None, node)
        assert two.node_batch == of_two
        contender = trials.start(two)
        try:  # it refuses a script whose ranks read another number of samples
            assert len(contender.make_steps(4, time_limit_s=120.0)) >= 4
        finally:
            contender.close()

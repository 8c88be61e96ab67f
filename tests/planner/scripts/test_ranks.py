"""Rates of scripts of several processes: samples of a step are size, accumulation and ranks."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launch.scripts.program import Program
from planner.api.scripts.tuning import ScriptTrials, TunedScript
from probes.node import probe

pytestmark = pytest.mark.long  # four starts of torchrun

RANKS = """
import sys
import torch
torch.distributed.init_process_group("gloo")
batch = int(sys.argv[1]) // (torch.distributed.get_world_size() if sys.argv[2] == "split" else 1)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.ones(1).expand(10_000_000, 8))
for number, (inputs,) in enumerate(torch.utils.data.DataLoader(data, batch_size=batch)):
    net(inputs).square().mean().backward()
    if number % 2:  # two batches are accumulated
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("kind", "of_one", "of_two"), [("each", 2 * 32, 2 * 2 * 32), ("split", 2 * 32, 2 * 32)]
)
def test_samples_of_a_step_are_those_that_its_ranks_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, of_one: int, of_two: int
):
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

"""A small script that trains, tuned once for all tests of a process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch_stand_in import write_torch

TRAIN = """
import signal, sys

steps, batch, end = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

def finish():
    if end == "fail":
        sys.exit(3)
    if end == "raise":
        import weights
    if end == "killed":
        signal.raise_signal(signal.SIGKILL)

if not steps:  # torch takes seconds to load
    finish()
    sys.exit(f"batch {batch}")

import torch

open("left_behind", "w").close()
model = torch.nn.Linear(512, 512)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.ones(1).expand(steps * batch, 512))
for (inputs,) in torch.utils.data.DataLoader(data, batch_size=batch):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
print("threads", torch.get_num_threads(), "batch", batch, flush=True)
finish()
"""
TUNED = """
import sys, time
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader

open("left_behind", "w").close()
optimizer = SGD()
for _ in DataLoader([int(sys.argv[2])] * int(sys.argv[1])):
    time.sleep(0.005)
    optimizer.step()
"""
"""Stands for it while it is tuned, with a stand-in for torch: a search starts it many times."""

STEPS = "100000"


def make_command(steps: str = STEPS, end: str = "well") -> list[str]:
    return ["--", sys.executable, "train.py", steps, "{batch}", end]


@pytest.fixture(scope="session")
def command() -> Callable[..., list[str]]:
    """Words of the script: by default those that were tuned."""
    return make_command


@pytest.fixture(scope="session")
def script_folder(
    probed_database: Path, command_line: Callable[[Path], Any], tmp_path_factory: Any
) -> Path:
    """A folder with a script, the database of a search for it, and what that said as JSON."""
    folder = tmp_path_factory.mktemp("script")
    write_torch(folder)
    (folder / "train.py").write_text(TUNED)
    (folder / "planner.db").write_bytes(probed_database.read_bytes())
    line = command_line(folder)
    limits = ("--budget", "20s", "--trials", "1", "--choices", "batch=32,64", "--json")
    ended = line.end(line.start("tune", *limits, *make_command()))
    assert ended.code == 0, ended.err
    assert not line.processes()
    (folder / "out").write_text(ended.out)
    (folder / "said").write_text(ended.err)
    return folder


@pytest.fixture
def script_said(script_folder: Path) -> str:
    """What the search wrote beside its result."""
    return (script_folder / "said").read_text()


@pytest.fixture
def plan_id(script_folder: Path) -> int:
    """Number of the plan that the search stored."""
    return int(json.loads((script_folder / "out").read_text())["data"]["plan"]["id"])


@pytest.fixture
def tuned_script(ddlplan: Any, script_folder: Path) -> Any:
    """The command in a folder with the script and its plan."""
    (ddlplan.folder / "train.py").write_text(TRAIN)
    for name in ("planner.db", "out"):
        (ddlplan.folder / name).write_bytes((script_folder / name).read_bytes())
    return ddlplan

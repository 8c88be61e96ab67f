"""Scripts under an mpirun of the user's own on one host, as the document shows it."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from launch.system.process_tree import find_descendants
from probes.hardware import Hardware

DOCUMENT = Path(__file__).parents[3] / "docs" / "scripts.md"
TRAIN = """
import os, sys, time
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader

rank = os.environ["OMPI_COMM_WORLD_RANK"]
assert (os.environ["RANK"], os.environ["LOCAL_RANK"]) == (rank, rank)
assert os.environ["WORLD_SIZE"] == "2"
assert os.environ["MASTER_ADDR"] == "127.0.0.1"
assert os.environ["MASTER_PORT"] == str(20000 + os.getppid() % 10000)
assert os.sched_getaffinity(0) == os.sched_getaffinity(os.getppid())
batch, optimizer = int(sys.argv[2]), SGD()
for _ in DataLoader([batch] * 10**6):
    time.sleep(0.001)
    optimizer.step()
"""


def test_ranks_know_their_places_and_share_the_cores(
    tmp_path: Path, two_cores: Hardware, monkeypatch: pytest.MonkeyPatch
):
    """The story: Open MPI sets no RANK, and binds a rank, whatever its threads, to one core."""
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    (line,) = re.findall(r"^ddlplan tune .* -- (mpirun .*)$", DOCUMENT.read_text(), re.MULTILINE)
    words = shlex.split(line)
    words.insert(1, "--oversubscribe")  # where a core is all that there is
    program = Program.parse(words, cores=2, choices={"batch": (32,), "processes": (2,)})
    plan = Plan(strategy="script", node_batch=64, processes=2, options={"batch": 32})
    for name in ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    running = find_descendants(os.getpid())
    with RunningScript(program, plan, two_cores, folder=tmp_path) as script:
        script.make_steps(2, time_limit_s=120.0)
        steps = str(script.recognised)
        assert steps == "optimizer SGD, 1 step per batch of 32 on each of 2 ranks"
        assert len(script.make_steps(3, time_limit_s=120.0)) == 3
    assert find_descendants(os.getpid()) - running == set()

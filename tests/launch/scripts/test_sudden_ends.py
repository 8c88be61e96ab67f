"""Sudden ends: who measures a script is killed, and nothing of that is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch_stand_in import write_torch

from launch.errors import ScriptFailedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from launch.system.process_tree import find_descendants
from probes.hardware import Hardware
from tests.launch.scripts.temporary_processes import below

SCRIPT = """
import os, signal, subprocess, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
if not os.fork():
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(1000)
subprocess.Popen(["sleep", "1000"])
from torch.optim.optimizer import SGD
optimizer = SGD()
while True:
    time.sleep(0.001)
    open("written", "a").write("x")
    optimizer.step()
"""
OWNER = """
import sys
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from probes.node import probe

program = Program.parse([sys.executable, "train.py"], cores=2)
plan = Plan(strategy="script", node_batch=1)
for _ in range(1000):
    with RunningScript(program, plan, probe(quick=True)) as script:
        for _ in range(100):
            script.make_steps(20, time_limit_s=120.0)
            print("turn", flush=True)
"""
END_LIMIT_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    write_torch(made)
    (made / "train.py").write_text(SCRIPT)
    return made


@pytest.mark.long
@pytest.mark.parametrize("later_s", [0.0, 0.1, 0.3])
def test_killed_owner_leaves_nothing(later_s, folder, temporary):
    names = sorted(path.name for path in folder.rglob("*"))
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(temporary), "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"turn\n"
        time.sleep(later_s)
        running = below(temporary) - {owner.pid}
        assert len(running) >= 4  # supervisor, script, daemon, sleep
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    give_up = time.monotonic() + END_LIMIT_S
    while (below(temporary) or list(temporary.iterdir())) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert below(temporary) == set()
    assert list(temporary.iterdir()) == []
    assert sorted(path.name for path in folder.rglob("*")) == names


def test_killed_supervisor_is_one_line_and_leaves_nothing(
    folder: Path, temporary: Path, two_cores: Hardware, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = find_descendants(os.getpid())
    program = Program.parse([sys.executable, "train.py"], cores=2)
    plan = Plan(strategy="script", node_batch=1)
    with RunningScript(program, plan, two_cores, folder=folder) as script:
        script.make_steps(4, time_limit_s=120.0)
        [supervisor] = [
            pid
            for pid in find_descendants(os.getpid()) - before
            if b"launch.scripts.supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes()
        ]
        assert len(below(temporary)) >= 3
        os.kill(supervisor, signal.SIGKILL)
        with pytest.raises(ScriptFailedError, match="the script has ended, killed by signal 9"):
            script.make_steps(10_000, time_limit_s=120.0)  # it may make some before it is gone
    assert below(temporary) == set()
    assert list(temporary.iterdir()) == []

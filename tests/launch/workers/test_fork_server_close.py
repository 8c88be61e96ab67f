"""The end of a fork server, whatever it is doing."""

from __future__ import annotations

import select
import signal
import sys
import tempfile
from pathlib import Path

import psutil
import pytest

from launch.plan import Plan
from launch.workers.fork_server import ForkServer
from launch.workers.group import ReportReceived


def test_server_that_cannot_be_started_leaves_no_file_open(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(FileNotFoundError) as raised:
        ForkServer()
    assert len(list(Path("/proc/self/fd").iterdir())) == before, raised


def test_server_that_still_loads_torch_is_ended_at_once():
    """It looked up only once torch was loaded: on a busy machine a search that was told to end
    waited ten seconds for that."""
    server = ForkServer()
    server.close()
    assert server._process.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{server.pid}").exists()


def test_ends_of_workers_are_asked_for_without_waiting_after_a_ctrl_c_during_the_start():
    """The limit of the start stayed on the socket: a command ended two minutes later, as a bug."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    with ForkServer() as server:
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            with pytest.raises(KeyboardInterrupt):
                server.wait_until_ready()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert server.take_exits([]) == []


def test_ready_server_whose_owner_never_heard_of_it_leaves_no_folder(tmp_path, monkeypatch):
    """It is ended by SIGKILL, and had made its folder by then."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    server = ForkServer()
    select.select([server], [], [])
    server.close()
    assert server._process.returncode == -signal.SIGKILL
    assert not list(tmp_path.glob("ddlplan-*"))


@pytest.mark.parametrize("length", [40, 90])
def test_server_that_is_closed_leaves_no_worker_and_no_folder_of_temporary_files(
    length, training, two_cores, tmp_path, monkeypatch
):
    """Each trial with loader processes left /tmp/pymp-... behind, 75 of them after a morning.

    Where the folder's path is longer than a socket's may be, they waited for their data for ever.
    Workers were killed and not waited for, and the folder that they use was removed meanwhile.
    """
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        temporary = Path(short, "t" * (length - len(short) - 1))
        temporary.mkdir()
        monkeypatch.setenv("TMPDIR", str(temporary))
        plan = Plan(strategy="sequential", node_batch=8, loader_workers=1)
        pair = Plan(strategy="processes", node_batch=8, processes=2, replicas=2)
        with ForkServer() as server:
            trial = type(training)(server, two_cores, tmp_path)
            with trial.start(trial.task("Sgd", plan)) as group:
                while not isinstance(event := group.next_event(), ReportReceived):
                    assert event is not None
            with trial.start(trial.task("Hangs", pair)) as group:
                pids = group.pids
                server.close()
                assert [pid for pid in pids if psutil.pid_exists(pid)] == []
        left = {file.name.partition("_")[0] for file in temporary.iterdir()}
        assert left <= {"torchinductor"}, "but for kernels that torch keeps"

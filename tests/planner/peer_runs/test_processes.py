"""Processes of a peer: they stand still between turns, and end with their owner."""

from __future__ import annotations

import os
import platform
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launch.hosts.host_line import Host
from launch.system.temporary_folder import remove_abandoned
from launch.workers.log import find_cause
from planner.peer_runs.processes import PeerFailedError, PeerProcesses, supervised
from planner.peer_runs.supervisor import TOKEN_VARIABLE, PeerSupervisor, SupervisorRequest
from planner.peers._base import PeerStart
from planner.peers._reports import PeerBegun, PeerStepDone
from probes import codec
from tests.launch.awaited_daemon import AWAITING

GUARD_S = 120.0

COUNTING = """
import os, platform, subprocess, sys, time
from pathlib import Path
from planner.peers._reports import PeerBegun, PeerStepDone
child = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
pipe = os.open(Path(sys.argv[1]) / platform.node(), os.O_WRONLY)
os.write(pipe, PeerBegun(processes=1, threads=1).encode())
while True:
    began = time.perf_counter()
    time.sleep(0.02)
    step = PeerStepDone(time_s=time.perf_counter() - began, samples=1, loss=1.0)
    os.write(pipe, step.encode())
"""


def request(tmp_path: Path, program: str) -> SupervisorRequest:
    folder = str(tmp_path / "peer")
    command = (sys.executable, "-c", program, folder)
    commands = (PeerStart(command=command),)
    return SupervisorRequest(token=tmp_path.name, folder=folder, commands=commands)


def started(tmp_path: Path, program: str) -> PeerProcesses:
    return PeerProcesses([supervised(None, request(tmp_path, program))])


def inside(tmp_path: Path) -> dict[int, str]:
    """The processes of the peer that have not ended, with their states."""
    found = {}
    for folder in Path("/proc").iterdir():
        try:
            if f"{TOKEN_VARIABLE}={tmp_path.name}".encode() in (folder / "environ").read_bytes():
                found[int(folder.name)] = (
                    (folder / "stat").read_text().rpartition(")")[2].split()[0]
                )
        except (OSError, ValueError):
            continue
    return found


def wait_until(is_so, what: str) -> None:
    give_up = time.monotonic() + GUARD_S
    while not is_so():
        assert time.monotonic() < give_up, what
        time.sleep(0.02)


def test_a_malicious_release_on_a_host_is_refused_there_before_anything_starts(
    tmp_path, install_lightning, monkeypatch
):
    """Only the host that `compare` was started on was looked at."""
    install_lightning("2.6.2")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "2.6.2"), prepend=os.pathsep)
    asked = replace(request(tmp_path, "import lightning"), modules=("lightning",))
    with (
        PeerProcesses([supervised(None, asked)]) as processes,
        pytest.raises(PeerFailedError, match=r"lightning 2\.6\.2 is a malicious release"),
    ):
        processes.next_report(GUARD_S)


def test_files_of_a_peer_which_may_hold_a_password_are_for_the_user_alone(tmp_path):
    """Spark's was in a file that everybody might read, in a folder that nobody else may enter."""
    asked = request(tmp_path, "import os; raise ValueError(oct(os.stat('conf').st_mode))")
    commands = (replace(asked.commands[0], files={"conf": "password"}),)
    asked = replace(asked, commands=commands)
    with (
        PeerProcesses([supervised(None, asked)]) as processes,
        pytest.raises(PeerFailedError, match="ValueError: 0o100600"),
    ):
        processes.next_report(GUARD_S)


def test_servers_on_all_addresses_are_not_started_where_a_host_has_another_network(tmp_path):
    """Ray and TensorFlow have no option for the address of their servers."""
    up = {name for name, state in psutil.net_if_stats().items() if state.isup}
    addresses = [
        one.address for name, own in psutil.net_if_addrs().items() if name in up for one in own
    ]
    if not any(re.fullmatch(r"(?!127)\d+\.\d+\.\d+\.\d+", one) for one in addresses):
        pytest.skip("this machine has no network")
    asked = replace(request(tmp_path, COUNTING), address="127.0.0.1", listens_everywhere=True)
    with (
        PeerProcesses([supervised(None, asked)]) as processes,
        pytest.raises(PeerFailedError, match=r"its servers would listen on .* too: compare it "),
    ):
        processes.next_report(GUARD_S)


def test_a_stopped_peer_stands_still_with_all_it_has_started_goes_on_when_told_and_ends(tmp_path):
    with started(tmp_path, COUNTING) as processes:
        assert isinstance(processes.next_report(GUARD_S), PeerBegun)
        assert isinstance(processes.next_report(GUARD_S), PeerStepDone)
        processes.stop()
        assert set(inside(tmp_path).values()) == {"T"}
        assert len(inside(tmp_path)) == 2
        assert processes.next_report(0.2) is None
        processes.proceed()
        assert isinstance(processes.next_report(GUARD_S), PeerStepDone)
        processes.stop()
    assert not inside(tmp_path)
    assert not (tmp_path / "peer").exists()


def test_a_daemon_that_has_ended_vanishes_for_the_peer_that_waits_for_that(tmp_path):
    """It stayed as a zombie of its supervisor, and the peer was killed when its time was up."""
    with started(tmp_path, AWAITING + COUNTING) as processes:
        assert isinstance(processes.next_report(GUARD_S), PeerBegun)
    assert (tmp_path / "in order").exists()


@pytest.mark.parametrize("name", ["ssh", "orted"])
def test_what_waits_for_processes_on_other_hosts_is_not_stopped(name, tmp_path):
    """Horovod on two hosts ended in its first pause: a server of ssh gave its client up."""
    (tmp_path / name).write_bytes(Path("/bin/sleep").read_bytes())
    (tmp_path / name).chmod(0o700)
    code = f"import subprocess\nsubprocess.Popen(['{tmp_path}/{name}', '1000'])\n{COUNTING}"
    with started(tmp_path, code) as processes:
        processes.next_report(GUARD_S)
        processes.stop()
        assert sorted(inside(tmp_path).values()) == ["S", "T", "T"]
    assert not inside(tmp_path)


def test_a_stopped_peer_ends_with_its_owner_though_its_supervisor_was_killed(tmp_path):
    """The story: it stood still for ever, as what does takes no signal but SIGKILL."""
    with started(tmp_path, COUNTING) as processes:
        processes.next_report(GUARD_S)
        processes.stop()
        (channel,) = processes._channels
        channel._process.kill()
        with pytest.raises(PeerFailedError, match="the connection was lost"):
            processes.proceed()
        assert len(inside(tmp_path)) == 2
    assert not inside(tmp_path)
    assert not (tmp_path / "peer").exists()


def test_the_end_of_what_a_killed_supervisor_left_removes_no_folder_of_another_user(
    tmp_path, monkeypatch
):
    folder = tmp_path / "peer"
    folder.mkdir()
    owner = folder.stat().st_uid
    supervisor = PeerSupervisor(request(tmp_path, COUNTING))
    with monkeypatch.context() as other:
        other.setattr("os.geteuid", lambda: owner + 1)
        supervisor.end()
    assert folder.exists()
    supervisor.end()
    assert not folder.exists()


def test_the_folder_of_a_killed_supervisor_is_removed_by_the_next_command(tmp_path):
    """It stayed for ever where who had started it was killed as well."""
    folder = tmp_path / "ddlplan-0123456789ab"
    asked = SupervisorRequest(token=folder.name, folder=str(folder))
    program = [sys.executable, "-m", "planner.peer_runs.supervisor"]
    supervisor = subprocess.Popen(program, stdin=subprocess.PIPE)
    assert supervisor.stdin is not None
    supervisor.stdin.write(codec.encode(asked) + b"\n")
    supervisor.stdin.flush()
    wait_until((folder / platform.node()).exists, "it does not begin")
    remove_abandoned(tmp_path)
    assert folder.is_dir()
    supervisor.kill()
    supervisor.communicate()
    remove_abandoned(tmp_path)
    assert not folder.exists()


def test_processes_that_do_not_want_to_end_are_killed_though_a_signal_comes_meanwhile(tmp_path):
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + COUNTING
    with started(tmp_path, program) as processes:
        processes.next_report(GUARD_S)
        (channel,) = processes._channels
        channel.hang_up()
        time.sleep(0.5)  # they have three seconds
        channel._process.terminate()
    assert not inside(tmp_path)
    assert not (tmp_path / "peer").exists()


def test_a_dying_peer_says_why_in_one_line_and_keeps_the_end_of_its_log(tmp_path):
    program = "print('loading'); raise ValueError('no such layer')"
    with started(tmp_path, program) as processes:
        with pytest.raises(PeerFailedError, match="exit code 1: ValueError: no such layer") as why:
            processes.next_report(GUARD_S)
        assert "loading" in why.value.log_tail
        assert len(str(why.value).splitlines()) == 1


def test_a_killed_peer_names_the_signal(tmp_path):
    program = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    with (
        started(tmp_path, program) as processes,
        pytest.raises(PeerFailedError, match="killed by signal 9"),
    ):
        processes.next_report(GUARD_S)


def test_all_end_when_their_owner_is_killed(tmp_path):
    owner = subprocess.Popen(
        [
            *(sys.executable, "-c"),
            "import sys, time\n"
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
            "from pathlib import Path\n"
            "from test_processes import COUNTING, started\n"
            "processes = started(Path(sys.argv[1]), COUNTING)\n"
            "processes.next_report(60)\n"
            "print('begun', flush=True)\n"
            "time.sleep(600)\n",
            str(tmp_path),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "begun\n"
    assert inside(tmp_path)
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    owner.stdout.close()
    wait_until(lambda: not inside(tmp_path), "processes are left")


def test_a_peer_ends_on_a_host_that_hears_nothing_more_of_its_owner(tmp_path):
    """The story: where the network was cut it trained on until TCP gave up."""
    asked = supervised(Host(name="other", line=1), request(tmp_path, COUNTING)).request
    assert asked.silence_limit_s is not None
    with subprocess.Popen(
        [sys.executable, "-m", "planner.peer_runs.supervisor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    ) as supervisor:
        assert supervisor.stdin is not None
        assert supervisor.stdout is not None
        supervisor.stdin.write(codec.encode(replace(asked, silence_limit_s=2.0)) + b"\n")
        began = time.monotonic()
        while time.monotonic() < began + 3.0 or not inside(tmp_path):
            supervisor.stdin.write(b"\n")
            time.sleep(0.1)
        while supervisor.stdout.read(1 << 16):
            pass
        assert supervisor.wait(GUARD_S) == 0  # though its stdin is open still
    assert not inside(tmp_path)


def test_no_supervisor_is_left_where_no_more_threads_can_be_started(tmp_path, monkeypatch):
    """That of a script on several hosts was: one tells all that their owner is alive."""

    def refuse(_):
        raise RuntimeError("can't start new thread")

    before = set(psutil.Process().children())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        started(tmp_path, COUNTING)
    assert set(psutil.Process().children()) <= before


def test_a_supervisor_that_cannot_start_says_so(tmp_path):
    (tmp_path / "peer").write_text("a file where a folder should be")
    with (
        started(tmp_path, COUNTING) as processes,
        pytest.raises(PeerFailedError, match=r"the connection was lost: .*File"),
    ):
        processes.next_report(GUARD_S)


TORCHRUN = "x.ChildFailedError:\n[0]:\n  exitcode  : 77 (pid: 5)\n  error_file: <N/A>\n"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("a\nRuntimeError: b\n  at c\n", "RuntimeError: b"),
        ("[rank0]: ValueError: b\nx.ChildFailedError:\n===\n", "ValueError: b"),
        (
            f"{TORCHRUN}  traceback : To enable traceback see: https://x\n",
            "exitcode  : 77 (pid: 5)",
        ),
        (f"{TORCHRUN}  traceback : Signal 6 (SIGABRT) received by PID 5\n", "Signal 6 (SIGABRT) "),
        ("error: no such file\nbye\n", "error: no such file"),
        ("just words\n\n", "just words"),
        ("", ""),
    ],
)
def test_the_cause_is_the_last_line_that_names_an_error(log, cause):
    assert find_cause(log).startswith(cause)
    assert bool(find_cause(log)) == bool(cause)

"""Many programs at once: each answer in its place, and none waits for one that hangs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ranks_here import AS_ROOT

from launch.hosts import parallel_commands
from launch.hosts.name_resolution import resolve_all
from launch.hosts.parallel_commands import run_all
from launch.mpi.mpirun import find_mpirun
from launch.mpi.scratch_folder import with_files_in
from launch.system.process_tree import find_descendants
from launch.system.temporary_folder import TemporaryFolder

HANG = ["sleep", "1000"]


def python(program, *arguments):
    return [sys.executable, "-c", program, *arguments]


def has_ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def interrupt(_number, _answer):
    raise KeyboardInterrupt


def wait_until(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_answers_come_in_the_order_of_the_commands():
    heard = []
    answers = run_all(
        [
            ["sh", "-c", "sleep 0.2; echo slow"],
            ["echo", "fast"],
            ["sh", "-c", "echo no >&2; exit 3"],
        ],
        limit_s=30,
        on_result=lambda number, answer: heard.append((number, answer.code)),
    )
    assert [(a.code, a.out, a.err) for a in answers] == [
        (0, "slow\n", ""),
        (0, "fast\n", ""),
        (3, "", "no\n"),
    ]
    assert sorted(heard) == [(0, 0), (1, 0), (2, 3)]
    assert all(a.began_s <= a.ended_s for a in answers)


def test_program_that_hangs_is_ended_with_all_that_it_started():
    command = ["sh", "-c", "sleep 1000 & echo $!; wait"]
    hung, good = run_all([command, ["echo", "here"]], limit_s=2)
    assert (hung.code, good.code) == (None, 0)
    wait_until(lambda: has_ended(int(hung.out)))


def test_group_is_killed_while_no_other_can_have_its_number(monkeypatch):
    """The program had been waited for by then, so that its number was free."""
    taken = []
    monkeypatch.setattr(
        parallel_commands, "kill_group", lambda pid: taken.append(Path(f"/proc/{pid}").exists())
    )
    run_all([HANG], limit_s=0.5)
    assert taken == [True]


def test_what_is_left_in_the_background_is_not_waited_for():
    """A shared connection of ssh keeps its standard error open for ever."""
    command = ["sh", "-c", "setsid sleep 1000 & echo $!"]
    (answer,) = run_all([command], limit_s=60)
    assert answer.code == 0
    left = int(answer.out)
    assert not has_ended(left)
    os.kill(left, signal.SIGKILL)


def test_more_programs_than_may_run_at_once_all_get_their_turn(monkeypatch):
    monkeypatch.setattr(parallel_commands, "MAX_RUNNING", 2)
    answers = run_all([["echo", str(number)] for number in range(5)], limit_s=30)
    assert [answer.out for answer in answers] == [f"{number}\n" for number in range(5)]


def test_program_that_writes_without_end_is_ended(monkeypatch):
    monkeypatch.setattr(parallel_commands, "_MAX_BYTES", 1000)
    (answer,) = run_all([["yes"]], limit_s=60)
    assert answer.code is None
    assert len(answer.out) == 1000


def test_program_that_is_not_there_is_an_answer_too():
    (answer,) = run_all([["no-such-program"]], limit_s=30)
    assert answer.code != 0
    assert "no-such-program" in answer.err


def test_words_reach_the_program_as_they_are():
    words = ["$(echo x)", "a b", "'", "-o", "\n"]
    (answer,) = run_all([python("import sys; print(sys.argv[1:])", *words)], limit_s=30)
    assert answer.out == f"{words}\n"


def test_interrupt_leaves_no_program_behind():
    before = find_descendants(os.getpid())
    with pytest.raises(KeyboardInterrupt):
        run_all([["true"], HANG], limit_s=60, on_result=interrupt)
    assert find_descendants(os.getpid()) - before == set()


def test_nothing_is_left_of_an_mpirun_whose_ranks_hang(tmp_path, monkeypatch):
    """The story: mpirun was killed, but its ranks have process groups of their own and stayed."""
    for name, value in AS_ROOT.items():
        monkeypatch.setenv(name, value)
    program = "import os, pathlib, time\n"
    program += "pathlib.Path(str(os.getpid())).touch(); time.sleep(1000)"
    ranks = [find_mpirun(), "--host", "localhost:2", "-n", "2", "--bind-to", "none"]
    until_both_run = ["sh", "-c", "until [ $(ls | wc -l) = 2 ]; do sleep 0.05; done"]
    with TemporaryFolder() as scratch, pytest.raises(KeyboardInterrupt):
        run_all(
            [with_files_in(scratch, [*ranks, *python(program)], os.environ), until_both_run],
            limit_s=60,
            on_result=interrupt,
        )
    pids = [int(path.name) for path in tmp_path.iterdir()]
    assert len(pids) == 2
    assert all(has_ended(pid) for pid in pids)


def test_programs_end_with_whoever_asks_even_when_that_is_killed():
    program = "from launch.hosts.parallel_commands import run_all\n"
    program += "run_all([['sh', '-c', 'echo $$ > pid; exec sleep 1000']], limit_s=1000)"
    with subprocess.Popen([sys.executable, "-P", "-c", program]) as asking:
        file = Path("pid")
        wait_until(lambda: file.exists() and file.read_text().strip())
        pid = int(file.read_text())
        asking.send_signal(signal.SIGKILL)
    wait_until(lambda: has_ended(pid))


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_names_are_resolved_together_and_one_that_hangs_is_not_waited_for():
    def resolve(name):
        if name == "slow":
            time.sleep(30)
        return {f"192.0.2.{name}"}

    assert resolve_all(["1", "slow", "2"], resolve=resolve, limit_s=1) == {
        "1": {"192.0.2.1"},
        "slow": set(),
        "2": {"192.0.2.2"},
    }

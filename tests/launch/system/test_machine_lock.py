"""The machine's lock: who waits for whom, who is told, and files that are not what they seem."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace

import psutil
import pytest
from machine_holder import machine_in_use

from launch.errors import MachineBusyError
from launch.system import machine_lock
from launch.system.machine_lock import Occupant, timing_alone, training_noticed

ME = Occupant.of_this_process("ddlplan tune --use-case mine")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Locks of the test's own."""
    monkeypatch.setenv("DDLPLAN_LOCKS", str(tmp_path))
    return tmp_path


class Heard(list):
    """What was said, and the pauses that were made; after the first one something happens."""

    def __init__(self, then=lambda: None):
        super().__init__()
        self.troubles = []
        self._then = [then]

    def pause(self, time_s):
        if self._then:
            self._then.pop()()


def time_alone(heard, occupant=ME, *, waits=True):
    return timing_alone(
        occupant,
        waits=waits,
        on_wait=heard.append,
        on_trouble=heard.troubles.append,
        pause=heard.pause,
    )


def train(heard, occupant=ME):
    return training_noticed(occupant, heard.append)


@pytest.mark.parametrize("what", ["times", "trains"])
def test_second_waits_and_says_for_whom_until_that_one_is_killed(what):
    with machine_in_use(what) as process:

        def kill():
            os.kill(process.pid, signal.SIGKILL)
            process.wait()

        heard = Heard(kill)
        with time_alone(heard):
            pass
    (line,) = heard
    assert line.startswith(f"waiting for process {process.pid} of {ME.user}, since 20")
    assert line.endswith("Z: ddlplan theirs")
    assert heard.troubles == []


@pytest.mark.parametrize("what", ["times", "trains"])
def test_who_does_not_want_to_wait_is_refused(what):
    refused = pytest.raises(MachineBusyError, match=r"in use by process \d+ of .*: leave out --no-")
    with machine_in_use(what), refused, time_alone(Heard(), waits=False):
        pass


def test_training_waits_for_nobody_and_tells_whom_it_disturbs():
    heard = Heard()
    with machine_in_use("times") as process, train(heard):
        pass
    (line,) = heard
    assert f"disturbs the times that are measured by process {process.pid} of" in line


def test_trainings_do_not_mind_each_other():
    heard = Heard()
    with machine_in_use("trains"), train(heard), train(heard):
        pass
    assert heard == heard.troubles == []


def test_place_is_free_again_for_the_same_process():
    heard = Heard()
    for _ in range(2):
        with time_alone(heard, waits=False):
            pass
        with train(heard):
            pass
    assert heard == heard.troubles == []


def test_two_threads_of_one_process_exclude_each_other_too():
    with time_alone(Heard()), pytest.raises(MachineBusyError), time_alone(Heard(), waits=False):
        pass


def test_ranks_of_one_job_on_one_machine_share_its_place():
    rank = replace(ME, job="a job")
    heard = Heard()
    with time_alone(heard, rank), time_alone(heard, rank, waits=False):
        pass
    assert heard == []
    another = time_alone(heard, replace(rank, job="another"), waits=False)
    with pytest.raises(MachineBusyError), time_alone(heard, rank), another:
        pass


def test_files_are_open_to_every_user(folder):
    with time_alone(Heard()), train(Heard()):
        modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert modes == {"ddlplan-timing.lock": 0o666, "ddlplan-training-0.lock": 0o666}


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_links_to_somebody_elses_file_are_not_written_to(folder, link):
    precious = folder / "precious"
    precious.write_text("as it was")
    link(precious, folder / "ddlplan-timing.lock")
    heard = Heard()
    with time_alone(heard):
        pass
    assert precious.read_text() == "as it was"
    (trouble,) = heard.troubles
    assert "ddlplan-timing.lock: " in trouble
    assert trouble.endswith("let DDLPLAN_LOCKS name a folder that all its users may write to")


def test_pipe_in_the_place_of_a_lock_holds_nobody_up(folder):
    os.mkfifo(folder / "ddlplan-timing.lock")
    heard = Heard()
    with time_alone(heard):
        pass
    assert "it is no plain file" in heard.troubles[0]


@pytest.mark.parametrize("text", ["", '{"pid": "all of them"}'])
def test_who_does_not_describe_itself_is_named_as_the_kernel_knows_it(folder, text):
    """A place that was just taken, or the text of a full disk, was "another process"."""
    with machine_in_use("times") as process:
        (folder / "ddlplan-timing.lock").write_text(text)
        named = pytest.raises(
            MachineBusyError, match=rf"in use by process {process.pid} of .*python"
        )
        with named, time_alone(Heard(), waits=False):
            pass


def test_name_that_another_user_wrote_moves_no_cursor():
    theirs = replace(ME, command="tune \x1b[2J\udcff")
    assert str(theirs).endswith(": tune ?[2J?")


def run_below(statement: str) -> subprocess.CompletedProcess[str]:
    """Run a statement in a process that this one has started."""
    source = (
        "import sys\n"
        "from launch.system.machine_lock import Occupant, timing_alone, training_noticed\n"
        "me, fail = Occupant.of_this_process('ddlplan theirs'), sys.exit\n"
    )
    command = [sys.executable, "-c", source + statement]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_search_within_a_launched_script_does_not_wait_for_that(folder):
    """It waited for its own parent, which waited for it."""
    with train(Heard()):
        found = run_below(
            "with timing_alone(me, waits=False, on_wait=fail, on_trouble=fail): print('times')"
        )
    assert found.stdout == "times\n", found.stderr


def test_search_within_a_script_that_is_timed_is_refused_at_once():
    """It waited for what waited for it, until the time of the script's trial was over."""
    with time_alone(Heard()):
        found = run_below("with timing_alone(me, waits=True, on_wait=fail, on_trouble=fail): pass")
    line = found.stderr.splitlines()[-1]
    assert f"MachineBusyError: this machine is in use by process {os.getpid()} of " in line
    assert line.endswith("each would wait for the other: run this one by itself")


@pytest.mark.parametrize("other", [{"started_ticks": 1}, {"pid_namespace": "pid:[1]"}])
def test_other_process_with_the_number_of_one_above_is_waited_for(other):
    """The story: two containers had one host name, and a search in one was refused, as if that in
    the other, whose process had the number of its shell, ran it."""
    theirs = replace(ME, process=replace(ME.process, **other))
    with time_alone(Heard(), theirs):
        found = run_below("with timing_alone(me, waits=False, on_wait=fail, on_trouble=fail): pass")
    assert found.stderr.splitlines()[-1].endswith(": leave out --no-wait to wait for its end")


def test_process_above_of_an_earlier_release_is_known_by_its_number():
    with time_alone(Heard(), replace(ME, process=None)):
        found = run_below("with timing_alone(me, waits=True, on_wait=fail, on_trouble=fail): pass")
    assert found.stderr.splitlines()[-1].endswith(": run this one by itself")


def test_launch_within_a_script_that_is_timed_disturbs_nobody(folder):
    """It was told that it disturbs the times that are measured of it."""
    heard = Heard()
    with time_alone(heard):
        found = run_below("with training_noticed(me, fail): print('trains')")
    assert found.stdout == "trains\n", found.stderr
    assert heard == heard.troubles == []


def test_process_above_that_may_not_be_looked_at_ends_no_training(monkeypatch):
    """As where /proc is mounted with hidepid=1: a launch beside a search ended as a bug."""

    def refuse(process):
        raise psutil.AccessDenied(process.pid)

    heard = Heard()
    with machine_in_use() as process:
        monkeypatch.setattr(psutil.Process, "parent", refuse)
        with train(heard):
            pass
    (line,) = heard
    assert f"measured by process {process.pid} of" in line


def test_place_that_was_left_while_one_looked_for_its_process_is_taken(monkeypatch):
    """The one who waited was told of "another process" for half a second."""
    held = ExitStack()
    held.enter_context(time_alone(Heard()))
    look = machine_lock._Place.find_occupant

    def look_too_late(place):
        held.close()
        return look(place)

    monkeypatch.setattr(machine_lock._Place, "find_occupant", look_too_late)
    heard = Heard()
    with time_alone(heard):
        pass
    assert heard == []


def test_lock_without_a_folder_is_a_warning(monkeypatch, tmp_path):
    monkeypatch.setenv("DDLPLAN_LOCKS", str(tmp_path / "missing"))
    heard = Heard()
    with time_alone(heard), train(heard):
        pass
    assert len(heard) == len(heard.troubles) == 1


def test_folder_is_the_same_for_all_users(monkeypatch, tmp_path):
    """root may write to each, others only to the second."""
    monkeypatch.delenv("DDLPLAN_LOCKS")
    folders = [tmp_path / name for name in ("of-root", "of-all")]
    for folder, mode in zip(folders, (0o755, 0o1777), strict=True):
        folder.mkdir()
        folder.chmod(mode)
    monkeypatch.setattr(machine_lock, "FOLDERS", folders)
    with time_alone(Heard()):
        assert [file.parent.name for file in tmp_path.rglob("*.lock")] == ["of-all"]

"""The testbed holds what tests rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed import slot
from testbed.slot import sweep_free_slots
from testbed.space import is_alive

SLEEP = ["sleep", "1000"]


def ssh(bed, host, *argv):
    command = ["ssh", "-F", str(bed.ssh_config), host.name, *argv]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def can_reach(host, other) -> bool:
    probe = f"import socket; socket.create_connection(({other.address!r}, 22), timeout=0.5)"
    return host.run([sys.executable, "-c", probe]).returncode == 0


def wait_until(condition) -> None:
    while not condition():
        time.sleep(0.01)


def test_hosts_have_names_folders_and_cores_of_their_own_and_can_be_cut_off(testbed):
    names = ["alpha", "beta", "gamma"]
    bed = testbed(3, names=names, quotas=[0.5], cores=[None, "0"])
    first, second, third = bed.hosts
    assert [ssh(bed, host, "hostname").stdout for host in bed.hosts] == [f"{n}\n" for n in names]
    assert first.run(["getent", "hosts", "gamma"]).stdout.split() == [third.address, "gamma"]

    for host in bed.hosts:
        host.run(["touch", str(bed.scratch / host.name)])
    found = [[file.name for file in host.own_scratch.iterdir()] for host in bed.hosts]
    assert found == [[name] for name in names]
    assert not list(bed.scratch.iterdir())

    probe = "from probes.cpu import read_cpu; print(read_cpu().usable_cores)"
    python = [sys.executable, "-c", probe]
    assert [host.run(python).stdout.strip() for host in (first, second)] == ["1", "1"]
    bed.set_quota(first, None)
    assert first.run(python).stdout.strip() == str(len(os.sched_getaffinity(0)))

    assert can_reach(second, third)
    bed.cut(third)
    assert not can_reach(second, third)
    bed.mend(third)
    assert can_reach(second, third)


def test_program_that_is_started_on_a_host_is_the_process_itself(testbed):
    """Else a signal would reach a wrapper, and the program would go on."""
    bed = testbed(1)
    with subprocess.Popen(bed.hosts[0].command(SLEEP)) as running:
        wait_until(lambda: Path(f"/proc/{running.pid}/comm").read_text() == "sleep\n")
        assert bed.pids() == {running.pid}
        running.send_signal(signal.SIGTERM)
        assert running.wait() == -signal.SIGTERM
    assert bed.pids() == set()


def test_nothing_outlives_the_testbed_however_it_was_started(testbed):
    bed = testbed(1)
    ssh(bed, bed.hosts[0], "setsid nohup sleep 1000 </dev/null >/dev/null 2>&1 &")
    wait_until(lambda: len(bed.pids()) == 1)
    (pid,) = bed.pids()
    name, folder = bed._slot.name, bed.folder
    bed.down()
    assert not is_alive(pid)
    assert not folder.exists()
    assert name not in subprocess.run(["ip", "link"], capture_output=True, text=True).stdout


def test_testbeds_side_by_side_do_not_see_each_other(testbed):
    one, other = testbed(1), testbed(1)
    assert one.network != other.network
    assert not can_reach(one.hosts[0], other.hosts[0])
    one.down()
    assert ssh(other, other.hosts[0], "hostname").stdout == "node1\n"


def test_what_a_killed_run_left_is_swept(testbed):
    """The lock of its slot goes with the process, so nothing else has to be trusted."""
    testbed(1)
    program = (
        f"import sys, time; sys.path.append({str(Path(__file__).parents[1])!r})\n"
        "from testbed import Testbed\n"
        "bed = Testbed(1)\n"
        "bed.hosts[0].run(['sh', '-c', 'setsid sleep 1000 </dev/null >/dev/null 2>&1 &'])\n"
        "print(*bed.pids(), bed.folder, flush=True)\n"
        "time.sleep(1000)\n"
    )
    python = [sys.executable, "-c", program]
    with subprocess.Popen(python, stdout=subprocess.PIPE, text=True) as run:
        said = run.stdout.readline()
        run.kill()
    pid, folder = said.split()
    assert is_alive(int(pid))
    sweep_free_slots()
    assert not is_alive(int(pid))
    assert not Path(folder).exists()


def test_failure_on_the_way_up_leaves_nothing(testbed):
    root = Path("/sys/fs/cgroup")
    before = set(root.glob("**/ddlbed*"))
    with pytest.raises(OSError, match="Invalid argument"):
        testbed(1, cores=["no core"])
    left = set(root.glob("**/ddlbed*")) - before
    assert not [path for path in left if is_free(path) and path.exists()]


def is_free(path: Path) -> bool:
    """Tell whether nobody has the slot of a group; other testbeds come and go meanwhile."""
    number = path.name.removeprefix("ddlbed").partition("-")[0]
    lock = slot._try_lock(slot._LOCKS / number)
    if lock is None:
        return False
    os.close(lock)
    return True

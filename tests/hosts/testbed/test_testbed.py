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


def test_hosts_know_their_names_and_one_another(testbed):
    bed = testbed(3, names=["alpha", "beta", "gamma"])
    assert [ssh(bed, host, "hostname").stdout for host in bed.hosts] == [
        "alpha\n",
        "beta\n",
        "gamma\n",
    ]
    found = bed.hosts[0].run(["getent", "hosts", "gamma"]).stdout
    assert found.split() == [bed.hosts[2].address, "gamma"]


def test_scratch_is_another_folder_on_each_host(testbed):
    bed = testbed(2)
    for host in bed.hosts:
        host.run(["touch", str(bed.scratch / host.name)])
    assert [[file.name for file in host.own_scratch.iterdir()] for host in bed.hosts] == [
        ["node1"],
        ["node2"],
    ]
    assert not list(bed.scratch.iterdir())


def test_cut_host_is_not_reached_until_it_is_mended(testbed):
    bed = testbed(2)
    first, second = bed.hosts
    assert can_reach(first, second)
    bed.cut(second)
    assert not can_reach(first, second)
    bed.mend(second)
    assert can_reach(first, second)


def test_quota_and_cores_are_what_the_probe_finds(testbed):
    bed = testbed(2, quotas=[0.5], cores=[None, "0"])
    probe = "from probes.cpu import read_cpu; print(read_cpu().usable_cores)"
    python = [sys.executable, "-c", probe]
    assert bed.hosts[0].run(python).stdout.strip() == "1"
    assert bed.hosts[1].run(python).stdout.strip() == "1"
    bed.set_quota(bed.hosts[0], None)
    assert bed.hosts[0].run(python).stdout.strip() == str(len(os.sched_getaffinity(0)))


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

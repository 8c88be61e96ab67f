"""What others take of the cores: recorded trees of /proc, and a real process that computes."""

import sys
import time

import psutil
import pytest

from probes.cpu import read_cpu
from probes.disturbance import Disturbance, DisturbanceWatch
from probes.hardware import CoreLimit, Cpu

OWN = 77
CGROUP_V2 = {
    "proc/self/cgroup": "0::/job\n",
    "proc/self/mountinfo": "1 0 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
}
CGROUP_V1 = {
    "proc/self/cgroup": "1:cpu,cpuacct:/job\n",
    "proc/self/mountinfo": "1 0 0:1 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
}


def cpu(cores=2, *, may_pin=True, quota=None):
    return Cpu(
        architecture="x86_64",
        logical_cores=4,
        usable_cores=cores,
        core_ids=tuple(range(cores)),
        quota_cores=quota,
        may_pin=may_pin,
        limits=(CoreLimit(source="test", cores=cores),),
    )


def kernel(*, busy=0, stolen=0, own=0, elsewhere=0):
    """Files of a machine with four cores of which the first two are ours; times in ticks."""
    cores = [busy // 2, busy - busy // 2, elsewhere, elsewhere]
    lines = [f"cpu{i} {ticks} 0 0 0 0 0 0 {stolen} 0 0" for i, ticks in enumerate(cores)]
    counters = f"{own} 0 0 0 20 0 1 0 9 1 1"
    return {
        "proc/stat": "cpu  1 2 3\n" + "\n".join(lines) + "\n",
        f"proc/{OWN}/stat": f"{OWN} (python) S 1 {OWN} 1 0 -1 0 0 0 0 0 {counters}\n",
    }


def seen(tree, before, after, of=None, *, seconds=2.0):
    """Give what a watch of these files tells of a turn of two seconds."""
    times = iter([0.0, 1.0, 10.0, 10.0 + seconds])
    root = tree(before)
    watch = DisturbanceWatch(of or cpu(), root, lambda: next(times))
    watch.begin()
    assert watch.end([OWN]) is None  # of the first turn nothing is known
    watch.begin()
    tree(after)
    return watch.end([OWN])


def test_time_of_others_is_what_is_busy_beside_the_plan(tree):
    found = seen(
        tree,
        kernel(busy=1000, own=500, elsewhere=0),
        kernel(busy=1360, own=760, elsewhere=200),  # 3.6 s busy, 2.6 s of them the plan's
    )
    assert found.others_cores == pytest.approx(0.5, abs=0.02)
    assert found.stolen_cores == found.throttled_cores == found.overheated == 0
    assert found.waiting_share is None


def test_time_that_the_hypervisor_took_is_told(tree):
    found = seen(tree, kernel(), kernel(busy=300, own=300, stolen=40))
    assert found.stolen_cores == pytest.approx(0.4)


def test_others_are_not_told_where_a_quota_grants_time_on_cores_of_all(tree):
    of = cpu(may_pin=False, quota=2.0)
    assert seen(tree, kernel(), kernel(busy=400), of).others_cores is None


def test_pressure_is_that_of_the_own_group_where_there_is_one(tree):
    def pressure(total_us):
        return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\nfull total=9\n"

    machine = {"proc/pressure/cpu": pressure(0)}
    own = CGROUP_V2 | {"sys/fs/cgroup/job/cpu.pressure": pressure(1_000_000)}
    after = kernel() | {"sys/fs/cgroup/job/cpu.pressure": pressure(1_500_000)}
    assert seen(tree, kernel() | machine | own, after).waiting_share == pytest.approx(0.25)


def test_pressure_of_the_machine_stands_in(tree):
    before = kernel() | {"proc/pressure/cpu": "some avg10=0.00 total=0\n"}
    after = kernel() | {"proc/pressure/cpu": "some avg10=9.00 total=2000000\n"}
    assert seen(tree, before, after).waiting_share == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("group", "stat", "was", "then"),
    [
        (CGROUP_V2, "sys/fs/cgroup/job/cpu.stat", "throttled_usec 5", "throttled_usec 1000005"),
        (
            CGROUP_V1,
            "sys/fs/cgroup/cpu/job/cpu.stat",
            "throttled_time 5",
            "throttled_time 1000000005",
        ),
    ],
    ids=["version 2", "version 1"],
)
def test_time_that_a_quota_took_is_told(tree, group, stat, was, then):
    periods = "nr_periods 7\nnr_throttled 1\n"
    before = kernel() | group | {stat: periods + was + "\n"}
    after = kernel() | {stat: periods + then + "\n"}
    assert seen(tree, before, after).throttled_cores == pytest.approx(0.5)
    small = cpu(1, may_pin=False, quota=0.4)  # it stops whatever runs, alone too
    assert seen(tree, before, after, small).throttled_cores == 0


def test_slowing_down_for_heat_is_told(tree):
    counter = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
    assert seen(tree, kernel() | {counter: "3\n"}, {counter: "5\n"}).overheated == 2


def test_machine_that_tells_nothing_disturbs_nothing(tree):
    found = seen(tree, {}, {})
    assert found == Disturbance(others_cores=0.0)
    assert not found.is_disturbed(2, 2)


@pytest.mark.parametrize(
    ("found", "threads", "is_disturbed"),
    [
        (Disturbance(others_cores=0.08), 2, False),
        (Disturbance(others_cores=0.12), 2, True),
        (Disturbance(others_cores=0.25), 1, False),  # the other core is free for them
        (Disturbance(others_cores=1.2), 1, True),
        (Disturbance(others_cores=0.05, stolen_cores=0.07), 2, True),
        (Disturbance(throttled_cores=0.5), 2, True),
        (Disturbance(others_cores=0.0, overheated=1), 2, True),
        (Disturbance(waiting_share=0.5), 2, True),
        (Disturbance(others_cores=0.0, waiting_share=0.5), 2, False),  # its own threads wait
        (Disturbance(others_gpu_share=0.05), 2, False),
        (Disturbance(others_gpu_share=0.2), 1, True),
        (Disturbance(slowed_gpus=1), 1, True),
    ],
)
def test_what_was_lost_beyond_free_cores_counts(found, threads, is_disturbed):
    assert found.is_disturbed(threads, cores=2) is is_disturbed


def test_others_on_a_gpu_may_have_slowed_a_step_and_heat_is_the_machines_own():
    half = Disturbance(others_cores=0.2, others_gpu_share=0.5)
    assert half.most_slowed == Disturbance(others_cores=0.5).most_slowed > 1.9
    assert Disturbance(others_gpu_share=0.05, slowed_gpus=2).most_slowed == 1.0


_BURN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def used_s(processes):
    times = [process.cpu_times() for process in processes]
    return sum(time.user + time.system for time in times)


def test_real_processes_that_compute_are_seen_unless_they_are_the_plans_own():
    cores = read_cpu().usable_cores
    others, own = DisturbanceWatch(read_cpu()), DisturbanceWatch(read_cpu())
    others.begin()
    others.end([])
    burners = [psutil.Popen([sys.executable, "-c", _BURN]) for _ in range(cores)]
    try:
        while used_s(burners) < 0.05:  # they start
            time.sleep(0.01)
        own.begin()
        own.end([burner.pid for burner in burners])
        others.begin()
        own.begin()
        began, before_s = time.monotonic(), used_s(burners)
        time.sleep(1.0)
        burned_cores = (used_s(burners) - before_s) / (time.monotonic() - began)
        as_own = own.end([burner.pid for burner in burners])
        as_others = others.end([])
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()
    if as_others.others_cores is None:
        pytest.skip("a quota grants time on cores of all")
    assert burned_cores > 0
    assert as_others.others_cores > 0.8 * burned_cores
    # What is left of the cores is all that others can have had, however busy the machine is.
    assert as_own.others_cores < cores - 0.8 * burned_cores

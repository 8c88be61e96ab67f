"""Samples of a host: of recorded processes, of real ones, of recorded GPUs."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from recorded_nvml import RecordedNvml

from probes.sampling.gpus import GpuSampler, GpuUse
from probes.sampling.host_sampler import HostSampler
from probes.sampling.machine import MachineCounters, read_counters
from probes.sampling.pace import Pace
from probes.sampling.process_tree import ProcessTree
from tests.hand_clock import HandClock

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
NETWORK = (
    "Inter-|   Receive                |  Transmit\n"
    " face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n"
    "    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0\n"
    "  eth0:{} 1 0 0 0 0 0 0 70 1 0 0 0 0 0 0\n"
    "  eth1: 500 1 0 0 0 0 0 0 7 1 0 0 0 0 0 0\n"
)


def process(pid, parent, *, ticks=(0, 0, 0, 0), threads=1, pages=(0, 0), started=5, stack=0):
    resident, shared = pages
    counters = " ".join(map(str, ticks))
    return {
        f"proc/{pid}/stat": f"{pid} (a) b (c) S {parent} {pid} 1 0 -1 0 0 0 0 0 "
        f"{counters} 20 0 {threads} 0 {started} 1 1 0 0 0 {stack} 0\n",
        f"proc/{pid}/statm": f"9999 {resident} {shared} 1 0 5 0\n",
    }


def always():
    return Pace(0.0, 1e9)


# Processes


def test_private_memory_is_added_up_and_shared_memory_counts_once(tree):
    root = tree(
        process(10, 1, threads=3, pages=(50, 10))
        | process(11, 10, threads=2, pages=(140, 100))
        | process(12, 11, pages=(130, 100))
        | process(20, 1, pages=(9000, 0))
    )
    use = ProcessTree(10, root).sample()
    assert (use.processes, use.threads) == (3, 6)
    assert use.memory_bytes == (40 + 40 + 30 + 100) * PAGE_BYTES


def test_forked_process_counts_with_what_it_has_beyond_its_parent(tree):
    root = tree(
        process(10, 1, pages=(50, 0), stack=1000)
        | process(11, 10, pages=(200, 0), stack=2000)  # another program
        | process(12, 11, pages=(230, 0), stack=2000)
        | process(13, 11, pages=(150, 0), stack=2000)
    )
    use = ProcessTree(10, root).sample()
    assert use.memory_bytes == (50 + 200 + 30) * PAGE_BYTES


def test_processor_time_counts_from_the_first_look_on(tree):
    root = tree(process(10, 1, ticks=(500, 0, 0, 0)) | process(11, 10, ticks=(100, 0, 0, 0)))
    processes = ProcessTree(10, root, always())
    assert processes.sample().cpu_s == 0
    tree(process(11, 10, ticks=(130, 10, 0, 0)) | process(12, 11, ticks=(7, 0, 0, 0), started=9))
    assert processes.sample().cpu_s == 47 / TICKS_PER_S


def test_time_of_a_process_that_ended_is_not_counted_again_in_its_parents_account(tree):
    root = tree(process(10, 1) | process(11, 10, ticks=(300, 0, 0, 0)))
    processes = ProcessTree(10, root, always())
    processes.sample()
    tree(process(10, 1, ticks=(0, 0, 305, 0)))
    for name in ("stat", "statm"):
        (root / "proc/11" / name).unlink()
    use = processes.sample()
    assert use.processes == 1
    assert use.cpu_s == 5 / TICKS_PER_S


def test_number_of_an_ended_process_that_another_one_has_is_another_process(tree):
    root = tree(process(10, 1) | process(11, 10, ticks=(300, 0, 0, 0)))
    processes = ProcessTree(10, root, always())
    processes.sample()
    tree(process(11, 10, ticks=(2, 0, 0, 0), started=70))
    assert processes.sample().cpu_s == 2 / TICKS_PER_S


def test_children_are_found_by_the_threads_that_started_them(tree):
    children = {
        "proc/10/task/10/children": "11 \n",
        "proc/10/task/14/children": "",
        "proc/11/task/11/children": "",
        "proc/11/task/15/children": "12 13 ",
    }
    processes = (process(10, 1), process(11, 10), process(12, 11), process(13, 11), process(20, 10))
    root = tree({name: text for each in processes for name, text in each.items()} | children)
    assert ProcessTree(10, root).sample().processes == 4  # the kernel names no other


def test_tree_that_has_ended_uses_nothing(tree):
    use = ProcessTree(10, tree({"proc/1/stat": ""})).sample()
    assert (use.processes, use.threads, use.memory_bytes) == (0, 0, None)


# The machine


def test_counters_of_the_machine_leave_out_idle_cores_and_loopback(tree):
    line = "cpu  900 50 80 7000 250 3 4 11 600 0\ncpu0 1 1 1 1 1 0 0 0 0 0\n"
    root = tree({"proc/stat": line, "proc/net/dev": NETWORK.format(1000)})
    assert read_counters(root) == MachineCounters(
        busy_s=(900 + 50 + 80 + 3 + 4) / TICKS_PER_S,
        io_wait_s=250 / TICKS_PER_S,
        received_bytes=1500,
        sent_bytes=77,
    )


def test_kernel_that_tells_nothing_counts_nothing(tree):
    counters = read_counters(tree({}))
    assert counters == MachineCounters(busy_s=0, io_wait_s=0, received_bytes=0, sent_bytes=0)


# Samples


def test_rates_are_differences_over_time(tree):
    stat = "cpu  {} 0 0 7000 {} 0 0 0 0 0\n"
    root = tree(
        process(10, 1, ticks=(100, 0, 0, 0))
        | {"proc/stat": stat.format(1000, 100), "proc/net/dev": NETWORK.format(1000)}
    )
    clock = HandClock()
    sampler = HostSampler(10, root=root, clock=clock)
    assert sampler.poll() is None
    clock.now_s += 4.0
    tree(
        process(10, 1, ticks=(100 + 2 * TICKS_PER_S, 0, 0, 0), threads=7)
        | {
            "proc/stat": stat.format(1000 + 3 * TICKS_PER_S, 100 + TICKS_PER_S),
            "proc/net/dev": NETWORK.format(5000),
        }
    )
    use = sampler.poll()
    assert use is not None
    assert use.elapsed_s == 4.0
    assert (use.busy_cores, use.machine_busy_cores, use.io_wait_cores) == (0.5, 0.75, 0.25)
    assert (use.received_bytes_per_s, use.sent_bytes_per_s) == (1000.0, 0.0)
    assert use.threads == 7
    assert use.gpus == ()
    assert sampler.poll() is None


def test_last_sample_needs_no_whole_second_but_time_enough_for_a_rate(tree):
    clock = HandClock()
    sampler = HostSampler(10, root=tree(process(10, 1)), clock=clock)
    clock.now_s += 0.05
    assert sampler.poll(is_last=True) is None
    clock.now_s += 0.1
    assert sampler.poll(is_last=True) is not None


def test_counter_that_falls_is_no_negative_rate(tree):
    clock = HandClock()
    root = tree(process(10, 1) | {"proc/net/dev": NETWORK.format(1000)})
    sampler = HostSampler(10, root=root, clock=clock)
    tree({"proc/net/dev": NETWORK.format(10)})
    clock.now_s += 60.0  # whatever the first sample cost
    use = sampler.poll()
    assert use is not None
    assert use.received_bytes_per_s == 0.0


def test_child_that_computes_is_seen():
    sampler = HostSampler(os.getpid())
    program = "import time\nbegan = time.process_time()\nwhile time.process_time() < began + 0.3: 0"
    subprocess.run([sys.executable, "-c", program], check=True)
    use = sampler.poll(is_last=True)
    assert use is not None
    assert use.busy_cores * use.elapsed_s >= 0.29
    assert use.processes >= 1
    assert use.memory_bytes > 0


# GPUs


@pytest.fixture
def nvml():
    return RecordedNvml(
        HandleByUUID={"GPU-b": 1, "GPU-c": 2},
        UtilizationRates={1: SimpleNamespace(gpu=93), 2: SimpleNamespace(gpu=0)},
        MemoryInfo={1: SimpleNamespace(used=2**34)},
        PowerUsage={1: 251_500},
    )


def test_gpus_of_the_plan_are_sampled_and_what_nvml_does_not_tell_is_not_known(nvml):
    sampler = GpuSampler(["GPU-b", "GPU-c", "GPU-gone"], nvml)
    assert sampler.sample() == (
        GpuUse(uuid="GPU-b", utilisation=0.93, memory_bytes=2**34, power_w=251.5),
        GpuUse(uuid="GPU-c", utilisation=0.0, memory_bytes=None, power_w=None),
    )
    sampler.close()
    assert not nvml.is_open
    assert sampler.sample() == ()


def test_nvml_is_not_loaded_for_a_plan_without_gpus(nvml):
    sampler = GpuSampler([], nvml)
    assert sampler.sample() == ()
    assert not nvml.is_open


def test_nvml_that_does_not_start_gives_no_gpus():
    class Broken:
        def nvmlInit(self):  # noqa: N802
            raise OSError("no driver")

    assert GpuSampler(["GPU-b"], Broken()).sample() == ()

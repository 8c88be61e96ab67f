import os
import subprocess
import sys

from probes.usage import find_group, find_tree, interrupts_s, mapped_bytes, resident_bytes

MIB = 2**20


def stat(pid, parent, group, *, name="python", ticks=(0, 0, 0, 0), threads=1):
    counters = " ".join(map(str, ticks))
    return f"{pid} ({name}) S {parent} {group} 1 0 -1 0 0 0 0 0 {counters} 20 0 {threads} 0 9 1 1\n"


# Memory


def test_shared_pages_are_counted_once(tree):
    rollup = "00-ff ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss: {} kB\nPss_Dirty: 9 kB\n"
    files = {
        "proc/1/smaps_rollup": rollup.format(500),
        "proc/2/smaps_rollup": rollup.format(400),
    }
    assert resident_bytes([1, 2], tree(files)) == 900 * 1024


def test_resident_size_stands_in_where_shares_are_not_told(tree):
    root = tree({"proc/1/statm": "1000 30 20 1 0 10 0\n"})
    assert resident_bytes([1], root) == 30 * os.sysconf("SC_PAGE_SIZE")


def test_processes_that_have_ended_are_left_out(tree):
    root = tree({"proc/1/smaps_rollup": "Pss: 4 kB\n"})
    assert resident_bytes([1, 2], root) == 4096
    assert resident_bytes([2], root) is None
    assert resident_bytes([], root) is None


_SHARE = """
import mmap, os
from probes.usage import resident_bytes

shared = mmap.mmap(-1, 64 << 20)
shared.write(b"x" * (64 << 20))
ready, tell = os.pipe()
waits, _ = os.pipe()
pid = os.fork()
if pid == 0:
    sum(shared[:: mmap.PAGESIZE])  # touches every page, then waits to be looked at
    os.write(tell, b"1")
    os.read(waits, 1)
os.read(ready, 1)
print(resident_bytes([pid]), resident_bytes([pid, os.getpid()]))
os.kill(pid, 9)
"""


def test_memory_that_two_real_processes_share_is_counted_once():
    program = [sys.executable, "-c", _SHARE]  # a small process: this one may hold torch by now
    said = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stdout
    alone, both = map(int, said.split())
    # each holds half of the 64 MiB; counted twice, the child alone would have them all
    assert 32 * MIB <= alone < 64 * MIB
    assert both >= 64 * MIB


# Processes


def test_tree_holds_descendants_but_not_neighbours(tree):
    files = {
        "proc/10/stat": stat(10, 1, 10),
        "proc/11/stat": stat(11, 10, 10, name="a) b (c"),
        "proc/12/stat": stat(12, 11, 12),
        "proc/20/stat": stat(20, 1, 20),
    }
    root = tree(files)
    assert find_tree(10, root) == (10, 11, 12)
    assert find_tree(99, root) == ()
    assert sorted(find_group(10, root=root)) == [10, 11]


def test_child_of_this_process_is_in_its_tree_and_in_its_own_group():
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        assert child.pid in find_tree(os.getpid())
        assert find_group(child.pid) == (child.pid,)
    finally:
        child.communicate(b"\n")
    assert find_group(child.pid) == ()


def test_mapped_memory_counts_a_shared_page_for_each_process(tree):
    root = tree({"proc/1/statm": "900 30 20 1 0 5 0", "proc/2/statm": "800 12 2 1 0 5 0"})
    assert mapped_bytes([1, 2, 3], root) == 42 * os.sysconf("SC_PAGE_SIZE")


def test_interrupts_count_on_the_cores_that_are_asked_for(tree):
    stat = "cpu  9 9 9 9 9 60 90\ncpu0 1 1 1 1 1 10 20 0\ncpu3 1 1 1 1 1 50 70 0\nintr 5 6\n"
    root = tree({"proc/stat": stat})
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    assert interrupts_s([0], root) == 30 / ticks_per_s
    assert interrupts_s([0, 3], root) == 150 / ticks_per_s
    assert interrupts_s([1], root) == 0.0


def test_interrupts_of_a_kernel_that_does_not_tell_are_none(tree):
    assert interrupts_s([0], tree({"proc/stat": "cpu0 1 1 1 1\n"})) == 0.0
    assert interrupts_s([0], tree({})) == 0.0

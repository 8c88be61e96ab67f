from probes.memory import oom_kill_count, read_memory

GIB = 2**30
MEMINFO = {
    "proc/meminfo": (
        "MemTotal:       16777216 kB\nMemFree:  1024 kB\nMemAvailable:    8388608 kB\n"
        "SwapTotal:       2097152 kB\nSwapFree:        1048576 kB\nHugePages_Total:       0\n"
    )
}
V2 = {
    "proc/self/cgroup": "0::/slice/job\n",
    "proc/self/mountinfo": "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/slice/job/memory.max": "max\n",
    "sys/fs/cgroup/slice/memory.max": "max\n",
}
V1 = {
    "proc/self/cgroup": "4:memory:/docker/4f1e\n",
    "proc/self/mountinfo": (
        "35 31 0:32 /docker/4f1e /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    ),
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
}


def test_machine_without_limits_may_use_all_its_memory(tree):
    memory = read_memory(tree(MEMINFO | V2), {})
    assert memory.total_bytes == memory.usable_bytes == 16 * GIB
    assert memory.available_bytes == 8 * GIB
    assert (memory.swap_bytes, memory.swap_free_bytes) == (2 * GIB, GIB)
    assert memory.limits == ()


def test_limit_of_an_ancestor_binds(tree):
    files = V2 | {
        "sys/fs/cgroup/slice/memory.max": f"{4 * GIB}\n",
        "sys/fs/cgroup/slice/job/memory.max": f"{6 * GIB}\n",
    }
    memory = read_memory(tree(MEMINFO | files), {})
    assert memory.usable_bytes == 4 * GIB
    assert [limit.source for limit in memory.limits] == [
        "cgroup v2 /slice/job",
        "cgroup v2 /slice",
    ]


def test_throttling_limit_binds_like_the_hard_one(tree):
    files = V2 | {"sys/fs/cgroup/slice/job/memory.high": f"{3 * GIB}\n"}
    assert read_memory(tree(MEMINFO | files), {}).usable_bytes == 3 * GIB


def test_huge_v1_limit_is_no_limit(tree):
    assert read_memory(tree(MEMINFO | V1), {}).limits == ()


def test_v1_limit_of_an_ancestor_that_a_container_cannot_see_binds(tree):
    stat = f"cache 0\nhierarchical_memory_limit {2 * GIB}\nhierarchical_memsw_limit 9\n"
    files = V1 | {"sys/fs/cgroup/memory/memory.stat": stat}
    assert read_memory(tree(MEMINFO | files), {}).usable_bytes == 2 * GIB


def test_slurm_grants_memory_per_node_or_per_core(tree):
    root = tree(MEMINFO)
    assert read_memory(root, {"SLURM_MEM_PER_NODE": "2048"}).usable_bytes == 2 * GIB
    per_core = {"SLURM_MEM_PER_CPU": "1024", "SLURM_CPUS_ON_NODE": "3"}
    assert read_memory(root, per_core).usable_bytes == 3 * GIB
    assert read_memory(root, {"SLURM_MEM_PER_NODE": "0"}).usable_bytes == 16 * GIB


def test_missing_shared_memory_is_absent_and_not_zero(tree):
    memory = read_memory(tree(MEMINFO), {})
    assert memory.shm_bytes is None
    assert memory.shm_free_bytes is None


def test_memory_of_this_machine_is_read():
    memory = read_memory()
    assert 0 < memory.usable_bytes <= memory.total_bytes
    assert memory.available_bytes <= memory.total_bytes


def test_oom_kills_are_counted_in_the_own_v2_group(tree):
    files = V2 | {
        "sys/fs/cgroup/slice/job/memory.events": "low 0\noom 3\noom_kill 2\n",
        "sys/fs/cgroup/slice/memory.events": "oom_kill 9\n",
    }
    assert oom_kill_count(tree(files)) == 2


def test_oom_kills_are_counted_in_the_own_v1_group(tree):
    control = "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n"
    assert oom_kill_count(tree(V1 | {"sys/fs/cgroup/memory/memory.oom_control": control})) == 5


def test_oom_kills_of_the_machine_count_where_the_group_has_no_counter(tree):
    assert oom_kill_count(tree(V2 | {"proc/vmstat": "nr_free_pages 7\noom_kill 4\n"})) == 4


def test_unknown_oom_count_is_absent_and_not_zero(tree):
    assert oom_kill_count(tree({})) is None

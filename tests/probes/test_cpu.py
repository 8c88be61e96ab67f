import os

from probes.cpu import read_cpu

XEON = (
    "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8480+\n"
    "flags\t\t: fpu sse2 avx2 avx512f avx512_bf16 avx512_vnni amx_bf16 amx_tile\n\n"
    "processor\t: 1\nmodel name\t: another\n"
)
V1_MOUNTS = (
    "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)
V2_MOUNTS = "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"


def machine(cores=8, sockets=1, threads=1, numa_nodes=1):
    """Text of /proc and /sys; second hardware threads are numbered after all first ones."""
    files = {
        "proc/cpuinfo": XEON,
        "sys/devices/system/cpu/online": f"0-{cores - 1}\n",
        "proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t0-{cores - 1}\n",
    }
    physical = cores // threads
    for core in range(cores):
        first = core % physical
        folder = f"sys/devices/system/cpu/cpu{core}/"
        siblings = ",".join(str(first + physical * thread) for thread in range(threads))
        files[folder + "topology/thread_siblings_list"] = siblings + "\n"
        files[folder + "topology/physical_package_id"] = f"{first * sockets // physical}\n"
    for node in range(numa_nodes):
        members = [c for c in range(cores) if (c % physical) * numa_nodes // physical == node]
        files[f"sys/devices/system/node/node{node}/cpulist"] = ",".join(map(str, members))
    return files


def in_v2_group(path, **quotas):
    files = {"proc/self/cgroup": f"0::{path}\n", "proc/self/mountinfo": V2_MOUNTS}
    for group, text in quotas.items():
        files[f"sys/fs/cgroup/{group.replace('__', '/')}/cpu.max"] = text
    return files


def read(tree, *parts, **environ):
    files = {}
    for part in parts:
        files |= part
    return read_cpu(tree(files), environ)


def test_idle_machine_may_be_used_wholly(tree):
    cpu = read(tree, machine(cores=8))
    assert cpu.usable_cores == 8
    assert cpu.core_ids == tuple(range(8))
    assert cpu.binding_limit.source == "online cores"


def test_affinity_limits(tree):
    cpu = read(tree, machine(), {"proc/self/status": "Cpus_allowed_list:\t2-3,6\n"})
    assert cpu.usable_cores == 3
    assert cpu.core_ids == (2, 3, 6)
    assert cpu.binding_limit.source == "affinity"
    assert cpu.logical_cores == 8


def test_quota_of_an_ancestor_binds_when_it_is_the_smallest(tree):
    cpu = read(
        tree,
        machine(),
        in_v2_group("/a/b/c", a="300000 100000", a__b="max 100000", a__b__c="600000 100000"),
    )
    assert cpu.usable_cores == 3
    assert cpu.core_ids == (0, 1, 2)
    assert cpu.binding_limit.source == "quota of cgroup v2 /a"


def test_part_of_a_core_is_cut_off(tree):
    assert read(tree, machine(), in_v2_group("/a", a="290000 100000")).usable_cores == 2


def test_quota_below_one_core_leaves_one(tree):
    cpu = read(tree, machine(), in_v2_group("/a", a="50000 100000"))
    assert (cpu.usable_cores, cpu.core_ids) == (1, (0,))
    assert cpu.quota_cores == cpu.granted_cores == 0.5
    assert cpu.binding_limit.source == "quota of cgroup v2 /a"
    # on a machine of one core too, though both limits are of one
    cpu = read(tree, machine(cores=1), in_v2_group("/a", a="10000 100000"))
    assert (cpu.granted_cores, cpu.binding_limit.source) == (0.1, "quota of cgroup v2 /a")


def test_v1_quota_binds_and_minus_one_is_no_quota(tree):
    groups = {
        "proc/self/cgroup": "2:cpu:/slurm/job_7\n",
        "proc/self/mountinfo": V1_MOUNTS,
        "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
        "sys/fs/cgroup/cpu/slurm/cpu.cfs_quota_us": "200000\n",
        "sys/fs/cgroup/cpu/slurm/cpu.cfs_period_us": "50000\n",
        "sys/fs/cgroup/cpu/slurm/job_7/cpu.cfs_quota_us": "-1\n",
        "sys/fs/cgroup/cpu/slurm/job_7/cpu.cfs_period_us": "100000\n",
    }
    cpu = read(tree, machine(), groups)
    assert cpu.usable_cores == 4
    assert cpu.binding_limit.source == "quota of cgroup v1 /slurm"
    assert cpu.quota_cores == 4.0


def test_cpuset_is_named_as_what_binds_the_affinity(tree):
    groups = {
        "proc/self/cgroup": "3:cpuset:/job\n",
        "proc/self/mountinfo": V1_MOUNTS,
        "proc/self/status": "Cpus_allowed_list:\t4-7\n",
        "sys/fs/cgroup/cpuset/job/cpuset.cpus": "4-7\n",
        "sys/fs/cgroup/cpuset/cpuset.cpus": "0-7\n",
    }
    cpu = read(tree, machine(), groups)
    assert cpu.core_ids == (4, 5, 6, 7)
    assert cpu.binding_limit.source == "cpuset of cgroup v1 /job"


def test_slurm_grants_the_node_and_not_one_task(tree):
    environ = {"SLURM_CPUS_ON_NODE": "6", "SLURM_CPUS_PER_TASK": "3", "SLURM_NTASKS": "2"}
    cpu = read(tree, machine(), **environ)
    assert cpu.usable_cores == 6
    assert cpu.binding_limit.source == "Slurm (SLURM_CPUS_ON_NODE)"


def test_senseless_grant_is_left_out(tree):
    assert read(tree, machine(), SLURM_CPUS_ON_NODE="4(x2)").usable_cores == 8


def test_every_limit_is_kept_with_its_source(tree):
    cpu = read(tree, machine(), in_v2_group("/a", a="500000 100000"), SLURM_CPUS_ON_NODE="7")
    assert [(limit.source, limit.cores) for limit in cpu.limits] == [
        ("online cores", 8),
        ("affinity", 8),
        ("quota of cgroup v2 /a", 5),
        ("Slurm (SLURM_CPUS_ON_NODE)", 7),
    ]


def test_second_hardware_threads_come_last_and_numa_nodes_together(tree):
    # node 0: cores 0, 1 with threads 4, 5; node 1: cores 2, 3 with threads 6, 7
    files = machine(cores=8, threads=2, sockets=2, numa_nodes=2)
    cpu = read(tree, files)
    assert cpu.core_ids == (0, 1, 2, 3, 4, 5, 6, 7)
    assert (cpu.logical_cores, cpu.physical_cores, cpu.sockets, cpu.numa_nodes) == (8, 4, 2, 2)


def test_neighbours_of_a_numa_node_come_first_under_a_quota(tree):
    files = machine(cores=4)
    # numbers that alternate between the nodes, as on many two-socket machines
    files["sys/devices/system/node/node0/cpulist"] = "0,2\n"
    files["sys/devices/system/node/node1/cpulist"] = "1,3\n"
    cpu = read(tree, files, in_v2_group("/a", a="200000 100000"))
    assert cpu.core_ids == (0, 2)


def test_second_thread_is_a_first_one_when_its_sibling_is_not_allowed(tree):
    files = machine(cores=8, threads=2)
    files["proc/self/status"] = "Cpus_allowed_list:\t0,4-6\n"
    # 4 shares a physical core with 0; of 5 and 6 the siblings are not ours
    assert read(tree, files).core_ids == (0, 5, 6, 4)


def test_core_that_is_offline_is_not_used(tree):
    files = machine(cores=4) | {"sys/devices/system/cpu/online": "0,2-3\n"}
    assert read(tree, files).core_ids == (0, 2, 3)


def test_cores_of_a_container_have_the_numbers_by_which_the_kernel_pins(tree):
    """The story: lxcfs shows them as 0 to 3, so that one of them was used, or none."""
    files = machine(cores=16) | {"sys/devices/system/cpu/online": "0-3\n"}
    files["proc/self/status"] = "Cpus_allowed_list:\t3,9,12-13\n"
    cpu = read(tree, files)
    assert cpu.core_ids == (3, 9, 12, 13)
    assert cpu.may_pin
    assert cpu.logical_cores == cpu.usable_cores == 4


def test_instruction_sets_are_those_of_the_first_core(tree):
    cpu = read(tree, machine())
    assert cpu.model == "Intel(R) Xeon(R) Platinum 8480+"
    assert cpu.instruction_sets == (
        *("amx_bf16", "amx_tile", "avx2", "avx512", "avx512_bf16", "avx512_vnni"),
    )


def test_arm_processor_is_named_by_its_part(tree):
    text = "processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU implementer\t: 0x41\n"
    cpu = read(tree, machine() | {"proc/cpuinfo": text + "CPU part\t: 0xd40\n\n"})
    assert cpu.model == "Arm implementer 0x41 part 0xd40"
    assert cpu.instruction_sets == ("arm_bf16", "neon", "sve")


def test_shared_caches_are_counted_once(tree):
    files = machine(cores=4)
    for core in range(4):
        half = "0-1" if core < 2 else "2-3"
        for index, level, kind, size, shared in (
            (0, 1, "Data", "48K", str(core)),
            (1, 1, "Instruction", "32K", str(core)),
            (2, 2, "Unified", "1M", str(core)),
            (3, 3, "Unified", "16384K", half),
        ):
            folder = f"sys/devices/system/cpu/cpu{core}/cache/index{index}/"
            files |= {folder + "level": str(level), folder + "type": kind}
            files |= {folder + "size": size, folder + "shared_cpu_list": shared}
    cpu = read(tree, files)
    assert (cpu.l1d_bytes, cpu.l2_bytes, cpu.l3_bytes) == (48 * 2**10, 2**20, 32 * 2**20)


def test_machine_that_tells_nothing_still_has_a_core(tree):
    cpu = read(tree)
    assert cpu.usable_cores == os.cpu_count()
    assert cpu.model is None
    assert cpu.physical_cores is None
    assert cpu.l3_bytes is None


def test_cores_of_this_machine_may_be_pinned_to():
    cpu = read_cpu()
    assert 1 <= cpu.usable_cores == len(cpu.core_ids) == len(set(cpu.core_ids))
    assert set(cpu.core_ids) <= os.sched_getaffinity(0)
    assert cpu.usable_cores == min(limit.cores for limit in cpu.limits)

"""Exported plans choose the cores that ddlplan would choose there, and tell where it would not."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.exports.own_cores import own_cores
from planner.exports.pinning import pinned_start
from probes.cpu import read_cpu

V1, V2 = "cgroup cgroup rw,cpu", "cgroup2 cgroup2 rw"


def write_machine(
    root: Path, *, cores: int, threads: int = 1, numa_nodes: int = 1, files: dict[str, str]
) -> Path:
    """Write what the kernel says of a machine; nodes take cores in turns."""
    physical = cores // threads
    text = {
        "proc/self/status": f"Cpus_allowed_list:\t0-{cores - 1}\n",
        "sys/devices/system/cpu/online": f"0-{cores - 1}\n",
    }
    for core in range(cores):
        siblings = ",".join(str(core % physical + physical * n) for n in range(threads))
        text[f"sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"] = siblings
        text[f"sys/devices/system/node/node{core % numa_nodes}/cpu{core}/online"] = "1"
    for node in range(numa_nodes):
        listed = ",".join(str(core) for core in range(cores) if core % numa_nodes == node)
        text[f"sys/devices/system/node/node{node}/cpulist"] = listed
    for name, content in {**text, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)
    return root


def quota_v1(quota_us: int, period_us: int) -> dict[str, str]:
    group = "sys/fs/cgroup/cpu/a/cpu"
    return {f"{group}.cfs_quota_us": f"{quota_us}\n", f"{group}.cfs_period_us": f"{period_us}\n"}


def in_group(mounted: str, kinds: str, path: str, quota: dict[str, str]) -> dict[str, str]:
    return {
        "proc/self/cgroup": f"{1 if kinds else 0}:{kinds}:{path}\n",
        "proc/self/mountinfo": f"35 24 0:30 / /sys/fs/cgroup{mounted}\n",
        **quota,
    }


@pytest.mark.parametrize(
    ("cores", "threads", "numa_nodes"), [(8, 1, 1), (8, 2, 1), (8, 1, 2), (16, 2, 2), (12, 2, 3)]
)
@pytest.mark.parametrize("plan", [(1, 3), (2, 1), (2, 2), (4, 2), (3, 2)])
def test_each_process_gets_the_cores_that_ddlplan_would_give_it(
    tmp_path, cores, threads, numa_nodes, plan
):
    root = write_machine(tmp_path, cores=cores, threads=threads, numa_nodes=numa_nodes, files={})
    processes, per_process = plan
    chosen = [own_cores(set(range(cores)), r, *plan, root) for r in range(processes)]
    best = read_cpu(root, {}).choose_cores(processes * per_process)
    assert tuple(core for part in chosen for core in part) == best
    assert all(len(part) == per_process for part in chosen)


@pytest.mark.parametrize(
    "files",
    [
        in_group(f" rw - {V2}", "", "/a/b", {"sys/fs/cgroup/a/cpu.max": "300000 100000\n"}),
        in_group(f" rw - {V2}", "", "/", {"sys/fs/cgroup/cpu.max": "300000 100000\n"}),
        in_group(f"/cpu rw - {V1}", "cpu,cpuacct", "/a", quota_v1(300_000, 100_000)),
    ],
    ids=["of an ancestor", "of a container", "version 1"],
)
def test_nothing_is_chosen_under_a_quota(tmp_path, files):
    root = write_machine(tmp_path, cores=8, files=files)
    assert read_cpu(root, {}).choose_cores(2) == ()
    assert own_cores(set(range(8)), 1, 2, 1, root) == list(range(8))


@pytest.mark.parametrize(
    "files",
    [
        in_group(f" rw - {V2}", "", "/a", {"sys/fs/cgroup/a/cpu.max": "max 100000\n"}),
        in_group(f" rw - {V2}", "", "/a", {"sys/fs/cgroup/a/cpu.max": "800000 100000\n"}),
        in_group(f"/cpu rw - {V1}", "cpu", "/a", quota_v1(400_000, 50_000)),
    ],
    ids=["none", "of all cores", "of all cores, version 1"],
)
def test_quota_that_leaves_time_for_all_cores_leaves_the_choice(tmp_path, files):
    root = write_machine(tmp_path, cores=8, files=files)
    assert read_cpu(root, {}).may_pin
    assert own_cores(set(range(8)), 1, 2, 1, root) == [1]


def test_nothing_is_chosen_where_slurm_grants_fewer_cores_than_are_allowed(tmp_path, monkeypatch):
    root = write_machine(tmp_path, cores=8, files={})
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    assert own_cores(set(range(8)), 0, 2, 1, root) == list(range(8))
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "8")
    assert own_cores(set(range(8)), 0, 2, 1, root) == [0]


def test_only_allowed_cores_are_chosen_and_all_where_the_plan_wants_more(tmp_path):
    root = write_machine(tmp_path, cores=8, threads=2, files={})
    assert own_cores({2, 6, 7}, 0, 1, 2, root) == [2, 7]
    assert own_cores({2, 6, 7}, 1, 2, 2, root) == [2, 6, 7]


def test_a_process_more_than_the_plan_has_keeps_all_allowed_cores(tmp_path):
    """The story: it had no core at all, and ended with "Invalid argument"."""
    root = write_machine(tmp_path, cores=8, files={})
    assert own_cores({2, 6, 7}, 2, 2, 1, root) == [2, 6, 7]


def test_a_plan_of_one_process_has_the_same_cores_whatever_rank_starts_it():
    assert "\npin(0, 1, 4)\n" in pinned_start(1, 4)
    assert '"LOCAL_RANK"' in pinned_start(2, 4)

"""Which cores the threads of a plan are pinned to."""

from __future__ import annotations

from probes.hardware import CoreLimit, Cpu


def smt_machine(*, may_pin: bool = True) -> Cpu:
    """Two NUMA nodes of two physical cores with two hardware threads each: 0-3, siblings 4-7."""
    homes = {0: (0, 0), 1: (0, 1), 2: (1, 2), 3: (1, 3), 4: (0, 0), 5: (0, 1), 6: (1, 2), 7: (1, 3)}
    return Cpu(
        architecture="x86_64",
        logical_cores=8,
        usable_cores=8,
        core_ids=tuple(range(8)),
        core_homes=tuple(homes[core] for core in range(8)),
        may_pin=may_pin,
        limits=(CoreLimit(source="test", cores=8),),
    )


def test_few_threads_get_a_physical_core_each():
    assert smt_machine().choose_cores(4) == (0, 1, 2, 3)


def test_halves_of_all_cores_lie_in_a_numa_node_each():
    cores = smt_machine().choose_cores(8)
    assert set(cores[:4]) == {0, 1, 4, 5}
    assert set(cores[4:]) == {2, 3, 6, 7}


def test_quarters_of_all_cores_are_a_physical_core_each():
    cores = smt_machine().choose_cores(8)
    assert [set(cores[i : i + 2]) for i in (0, 2, 4, 6)] == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


def test_nothing_is_pinned_where_a_quota_grants_time_and_not_cores():
    assert smt_machine(may_pin=False).choose_cores(4) == ()

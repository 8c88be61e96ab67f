"""What happens on GPUs in a turn: recorded answers of NVML, and recorded trees of /proc."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
from recorded_nvml import RecordedNvml

from probes.disturbance import Disturbance
from probes.sampling.gpu_watch import GpuWatch

WORKER, SHELL, OTHER, MPS, GONE = (os.getpid() + number for number in range(1, 6))
QUIET = Disturbance(others_cores=0.01)
SW_POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x04, 0x08, 0x20, 0x40, 0x80


def process(pid, parent, name="python"):
    return {
        f"proc/{pid}/comm": f"{name}\n",
        f"proc/{pid}/stat": f"{pid} ({name}) S {parent} {pid} 1 0\n",
    }


PROCESSES = {
    **process(WORKER, os.getpid()),
    **process(SHELL, 1, "bash"),
    **process(OTHER, SHELL),
    **process(MPS, 1, "nvidia-cuda-mps"),
}


def computed(pid, percent, at_us=20):
    return SimpleNamespace(pid=pid, timeStamp=at_us, smUtil=percent)


def holders(*pids):
    return [SimpleNamespace(pid=pid, usedGpuMemory=2**30) for pid in pids]


def seen(tree, *samples, cores=QUIET, before=0, after=0, are_used=True, holding=(WORKER, OTHER)):
    """Give what a watch tells of a turn, before which others computed too."""
    nvml = RecordedNvml(
        HandleByUUID={"GPU-b": 1},
        ProcessUtilization={1: {0: [computed(OTHER, 90, at_us=10)], 10: list(samples)}},
        ComputeRunningProcesses={1: holders(*holding)},
        CurrentClocksEventReasons={1: before},
    )
    watch = GpuWatch(["GPU-b"], are_used=are_used, nvml=nvml, root=tree(PROCESSES))
    watch.begin()
    nvml.answers["CurrentClocksEventReasons"] = {1: after}
    found = watch.end(cores)
    watch.close()
    assert not nvml.is_open
    return found


def test_process_of_others_that_computes_disturbs(tree):
    found = seen(tree, computed(WORKER, 60), computed(OTHER, 35))
    assert found == Disturbance(others_cores=0.01, others_gpu_share=0.35)
    assert found.is_disturbed(1, cores=2)


def test_processes_of_ours_do_not(tree):
    assert seen(tree, computed(WORKER, 60), computed(os.getpid(), 40)) == QUIET


@pytest.mark.parametrize("of_other", [(), (computed(OTHER, 0),)])
def test_process_that_only_holds_memory_does_not(tree, of_other):
    assert seen(tree, computed(WORKER, 95), *of_other) == QUIET


@pytest.mark.parametrize(
    "samples",
    [
        [computed(OTHER, 90)],
        [computed(GONE, 60), computed(OTHER, 35)],
        [computed(0, 60), computed(OTHER, 35)],
    ],
    ids=["alone", "beside one that is not here", "beside one without a number"],
)
def test_where_no_number_is_one_of_ours_nothing_is_certain(tree, samples):
    """In a container NVML may have the numbers of the machine: ours would seem to be others'."""
    assert seen(tree, *samples) == QUIET


@pytest.mark.parametrize(
    ("sample", "holding"),
    [
        (computed(GONE, 50), (WORKER, GONE)),
        (computed(0, 50), (WORKER, 0)),
        (computed(MPS, 50), (WORKER, MPS)),
        (computed(OTHER, 50), (WORKER,)),
        (computed(OTHER, 4_000_000), (WORKER, OTHER)),
        (computed(OTHER, 50, at_us=10), (WORKER, OTHER)),
    ],
    ids=["it has ended", "no number", "it computes for us", "a screen", "impossible", "too old"],
)
def test_what_may_be_no_process_of_others_that_computed_does_not_disturb(tree, sample, holding):
    assert seen(tree, computed(WORKER, 50), sample, holding=holding) == QUIET


@pytest.mark.parametrize(
    ("before", "after", "is_slowed"),
    [
        (0, SW_THERMAL, True),
        (HW_THERMAL | HW_SLOWDOWN, 0, True),
        (0, POWER_BRAKE | SW_POWER_CAP, True),
        (HW_SLOWDOWN, HW_SLOWDOWN, True),
        (0, HW_SLOWDOWN, False),  # as for a moment where clocks change
        (SW_POWER_CAP, SW_POWER_CAP, False),
        (0x01, 0x02 | 0x10 | 0x100, False),  # idle; clocks that somebody has chosen
    ],
)
def test_heat_and_hardware_that_slows_down_disturb_and_the_power_limit_does_not(
    tree, before, after, is_slowed
):
    found = seen(tree, before=before, after=after)
    assert found == Disturbance(others_cores=0.01, slowed_gpus=int(is_slowed))
    assert found.is_disturbed(1, cores=2) is is_slowed


def test_gpu_that_may_be_unused_counts_where_a_process_of_ours_computed_on_it(tree):
    assert seen(tree, computed(OTHER, 90), after=HW_THERMAL, are_used=False) == QUIET
    found = seen(tree, computed(WORKER, 50), after=HW_THERMAL, are_used=False)
    assert found.slowed_gpus == 1


def test_gpus_are_told_of_where_the_cores_are_not_known(tree):
    assert seen(tree, computed(WORKER, 95), cores=None) is None
    assert seen(tree, after=SW_THERMAL, cores=None) == Disturbance(slowed_gpus=1)


def test_older_name_of_the_function_is_tried_too():
    nvml = RecordedNvml(
        HandleByUUID={"GPU-b": 1}, CurrentClocksThrottleReasons={1: HW_THERMAL | HW_SLOWDOWN}
    )
    watch = GpuWatch(["GPU-b"], are_used=True, nvml=nvml)
    watch.begin()
    assert watch.end(QUIET).slowed_gpus == 1


@pytest.mark.parametrize("uuids", [["GPU-b"], ["GPU-gone"], []])
def test_functions_that_nvml_lacks_disturb_nothing(uuids):
    watch = GpuWatch(uuids, are_used=True, nvml=RecordedNvml(HandleByUUID={"GPU-b": 1}))
    for _ in range(2):
        watch.begin()
        assert watch.end(QUIET) == QUIET
    watch.close()
    watch.begin()
    assert watch.end(None) is None


def test_function_without_permission_leaves_the_others(tree):
    nvml = RecordedNvml(
        HandleByUUID={"GPU-b": 1},
        ProcessUtilization={1: PermissionError("No Permission")},
        CurrentClocksEventReasons={1: SW_THERMAL},
    )
    watch = GpuWatch(["GPU-b"], are_used=True, nvml=nvml, root=tree(PROCESSES))
    watch.begin()
    assert watch.end(QUIET) == Disturbance(others_cores=0.01, slowed_gpus=1)

"""What probe and doctor say of a machine, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest
import worth_cases

from planner.report.hardware import describe_hardware, hardware_lines
from planner.report.nodes import probe_row
from probes.hardware import ORDER_UNKNOWN, CoreLimit, Gpu, Hardware

CPU = replace(
    worth_cases.NODE.cpu,
    usable_cores=1,
    quota_cores=0.1,
    core_ids=(0,),
    limits=(
        CoreLimit(source="online cores", cores=1),
        CoreLimit(source="quota of cgroup v2 /a", cores=1, quota_cores=0.1),
    ),
    instruction_sets=("avx2",),
)
NODE = replace(worth_cases.NODE, cpu=CPU)


def line(node: Hardware, head: str) -> list[str]:
    return [text for text in hardware_lines(node) if text.startswith(head)]


def test_tenth_of_a_core_is_shown_as_that():
    """A container with a quota of 0.1 showed one core, as if that were all its own."""
    assert line(NODE, "usable cores") == ["usable cores 0.1 (limit: quota of cgroup v2 /a)"]
    assert probe_row("n1", NODE)["cores"] == "0.1"


@pytest.mark.parametrize(("quota_cores", "usable", "shown"), [(2.9, 2, "2"), (None, 8, "8")])
def test_whole_cores_are_shown_as_they_can_be_used(quota_cores, usable, shown):
    cpu = replace(CPU, usable_cores=usable, quota_cores=quota_cores)
    assert probe_row("n1", replace(NODE, cpu=cpu))["cores"] == shown


def test_machine_with_one_core_has_one_core():
    cpu = replace(CPU, quota_cores=None)
    assert describe_hardware(replace(NODE, cpu=cpu)) == "x86_64, 1 usable core, 8 GiB, no GPU"


def test_bf16_that_would_be_emulated_is_named_and_is_no_warning():
    """It was multiplied for seconds, until the time of the probe was up: a warning each time."""
    (said,) = line(NODE, "bf16")
    assert said == "bf16         not measured: this processor has no instructions for it"
    able = replace(NODE, cpu=replace(CPU, instruction_sets=("avx512_bf16",)))
    assert line(able, "bf16") == []  # its time was up: that is a warning


def test_measured_limits_of_a_gpu_are_shown():
    speeds = replace(NODE.speeds, gpu_fp32_flop_per_s=4.12e14, gpu_copy_bytes_per_s=4.1e12)
    assert line(replace(NODE, speeds=speeds), "GPU ") == [
        "GPU fp32     412.0 TFLOP/s",
        "GPU copy     4100.0 GB/s",
    ]


def test_machine_without_gpus_whose_reason_is_not_on_record_names_no_reason():
    assert line(NODE, "GPUs") == ["GPUs         none"]
    known = replace(NODE, gpu_reason="no NVIDIA driver")
    assert line(known, "GPUs") == ["GPUs         none: no NVIDIA driver"]


def test_gpus_whose_numbers_a_quick_probe_does_not_know_are_no_less_there():
    """The story: `probe --hosts --quick` had none on a host with GPUs of two kinds."""
    gpus = (Gpu(nvml_index=0, name="T4"), Gpu(nvml_index=1, name="A100"))
    node = replace(NODE, gpus=gpus, gpu_reason=ORDER_UNKNOWN)
    assert probe_row("n1", node)["gpus"] == "2"
    assert line(node, "GPUs") == [f"GPUs         {ORDER_UNKNOWN}"]
    hidden = replace(node, gpu_reason="CUDA_VISIBLE_DEVICES hides every GPU")
    assert probe_row("n1", hidden)["gpus"] == "none"
    assert line(hidden, "GPUs") == ["GPUs         not used: CUDA_VISIBLE_DEVICES hides every GPU"]

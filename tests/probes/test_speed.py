import json
import os
import sys
import time
from dataclasses import replace

import pytest
import torch

from probes import speed
from probes.cpu import read_cpu
from probes.errors import SpeedProbeError
from probes.hardware import Speeds
from probes.speed import best_rate, measure_speeds
from tests.hand_clock import HandClock


def printing(*documents: str) -> list[str]:
    return [sys.executable, "-c", "\n".join(f"print({text!r})" for text in documents)]


def rate_of(times_s, limit_s, amount=1.0):
    clock = HandClock()
    remaining = iter(times_s)
    runs = 0

    def run():
        nonlocal runs
        runs += 1
        clock.now_s += next(remaining)

    return best_rate(run, amount, limit_s, clock), runs


def test_rate_is_that_of_the_best_run_after_the_first():
    # the first one warms up, even where it is the quickest
    assert rate_of([0.1, 2.0, 0.5, 1.0], limit_s=3.5, amount=10.0) == (20.0, 4)


def test_one_run_is_timed_even_without_any_time_left():
    assert rate_of([1.0, 2.0], limit_s=0.0) == (0.5, 2)


def test_results_of_the_child_are_read():
    document = json.dumps({"speeds": {"jpeg_one_core_images_per_s": 500}, "failures": ["a line"]})
    report = measure_speeds([0], command=printing("{}", document))
    assert report.speeds == Speeds(jpeg_one_core_images_per_s=500.0)
    assert report.failures == ("a line",)


def test_what_was_measured_before_a_crash_is_kept():
    document = json.dumps({"speeds": {"jpeg_one_core_images_per_s": 500.0}, "failures": []})
    text = f"print({document!r}, flush=True); import os; os.kill(os.getpid(), 9)"
    report = measure_speeds([0], command=[sys.executable, "-c", text])
    assert report.speeds.jpeg_one_core_images_per_s == 500.0
    assert report.failures == ("limits were measured in part only: exit code -9",)


def test_child_without_a_result_is_an_error_with_the_reason():
    with pytest.raises(SpeedProbeError, match=r"exit code 1 \(No module named torch\)"):
        measure_speeds([0], command=[sys.executable, "-c", "exit('No module named torch')"])


@pytest.mark.parametrize("best", ["_multiply", "_multiply_by_onednn", "_convolve"])
def test_limit_is_that_of_the_best_way_to_compute(best, monkeypatch):
    """Training exceeded the limit that one product by MKL had shown, on AMD processors."""
    ways = []

    def rate_of(way, dtype, limit_s):
        ways.append(way.__name__)
        return 235e9 if way.__name__ == best else 49e9

    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    monkeypatch.setattr(speed, "_has_onednn_product", lambda: True)
    monkeypatch.setattr(speed, "_best_rate_of", rate_of)
    assert speed._compute_rate(torch.float32, 1, 1.5) == 235e9
    assert len(set(ways)) == 3


def test_limits_are_measured_on_any_cores_where_time_is_granted_and_not_cores(monkeypatch):
    """Containers with a quota on one machine were all measured on its first cores."""
    roaming = replace(read_cpu(), may_pin=False)
    monkeypatch.setattr(speed, "read_cpu", lambda: roaming)
    monkeypatch.setattr(speed, "_measure_all", lambda *_: ())
    monkeypatch.setattr(sys, "argv", ["speed", "--cores", "0"])
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: pytest.fail("it is pinned"))
    speed.main()


@pytest.mark.parametrize(
    ("instruction_sets", "is_measured"), [(("avx2",), False), (("avx2", "avx512_bf16"), True)]
)
def test_bf16_that_would_be_emulated_is_not_measured(instruction_sets, is_measured, monkeypatch):
    """The story: the first probe of a slow machine warned: "not done after 9.44722 s"."""
    cpu = replace(read_cpu(), instruction_sets=instruction_sets)
    monkeypatch.setattr(speed, "read_cpu", lambda: cpu)
    names = [name for name, _ in speed._quantities(1)]
    assert "fp32_one_core_flop_per_s" in names
    assert ("bf16_one_core_flop_per_s" in names) is is_measured


@pytest.fixture
def seen_gpu(monkeypatch):
    """A GPU that torch shows, in whose place the cores compute."""
    monkeypatch.setattr(speed, "_GPU", "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)


@pytest.mark.usefixtures("seen_gpu")
@pytest.mark.parametrize(("capability", "is_measured"), [((7, 5), False), ((8, 0), True)])
def test_bf16_that_a_gpu_would_emulate_is_not_measured(capability, is_measured, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    names = [name for name, _ in speed._quantities(1)]
    assert {"gpu_fp32_flop_per_s", "gpu_copy_bytes_per_s"} < set(names)
    assert ("gpu_bf16_flop_per_s" in names) is is_measured


@pytest.mark.usefixtures("seen_gpu")
def test_gpu_that_cannot_be_used_does_not_end_the_measurement(monkeypatch):
    def fail(device):
        raise RuntimeError("CUDA-capable device(s) is/are busy")

    monkeypatch.setattr(torch.cuda, "get_device_capability", fail)
    names = [name for name, _ in speed._quantities(1)]
    assert names[-1] == "gpu_copy_bytes_per_s"


@pytest.mark.parametrize(
    ("message", "said"),
    [("CUDA error: out of memory\nCompile with ...", "CUDA error: out of memory"), ("", "OSError")],
)
def test_quantity_that_fails_is_one_line(message, said, monkeypatch):
    """The story: probe printed CUDA's advice to its own developers, four lines of it."""

    def fail(limit_s):
        raise OSError(message)

    monkeypatch.setattr(speed, "_quantities", lambda cores: [("gpu_copy_bytes_per_s", fail)])
    (report,) = speed._measure_all(1, 60.0, time.perf_counter())
    assert report.failures == (f"gpu_copy_bytes_per_s was not measured: {said}",)


@pytest.mark.usefixtures("seen_gpu")
@pytest.mark.parametrize(("run_s", "sizes"), [(1e-6, [1024, 2048, 4096, 8192]), (0.006, [1024])])
def test_gpu_multiplies_matrices_that_keep_it_busy(run_s, sizes, monkeypatch):
    """No time ends that too early: to load its libraries takes longer than all products."""
    tried, allowed = [], []

    def multiply(size, dtype):
        tried.append(size)
        return (lambda: None), 2.0 * size**3

    def rate_of(run, operations, limit_s):
        run()
        return operations / run_s

    monkeypatch.setattr(torch, "set_float32_matmul_precision", allowed.append)
    monkeypatch.setattr(speed, "_multiply", multiply)
    monkeypatch.setattr(speed, "best_rate", rate_of)
    rate = speed._gpu_compute_rate(torch.float32, 0.0)
    assert tried == sizes
    assert rate == 2.0 * sizes[-1] ** 3 / run_s
    assert allowed == ["high"]  # TF32


@pytest.mark.usefixtures("seen_gpu")
def test_copy_of_a_gpu_counts_what_is_read_and_what_is_written(monkeypatch):
    def rate_of(run, amount, limit_s):
        run()
        return amount

    monkeypatch.setattr(speed, "_GPU_COPY_BYTES", 1000)
    monkeypatch.setattr(speed, "_GPU_COPIES", 3)
    monkeypatch.setattr(speed, "best_rate", rate_of)
    assert speed._gpu_copy_rate(0.0) == 6000.0


@pytest.mark.gpu
def test_limits_of_a_gpu_are_measured():
    report = measure_speeds([0], budget_s=60.0)
    assert report.failures == ()
    speeds = report.speeds
    assert speeds.host_to_device_bytes_per_s > 1e8
    assert speeds.gpu_fp32_flop_per_s > 1e11
    assert speeds.gpu_copy_bytes_per_s > 1e10
    if torch.cuda.get_device_capability() >= (8, 0):
        assert speeds.gpu_bf16_flop_per_s > speeds.gpu_fp32_flop_per_s


def test_limits_of_this_machine_are_measured():
    report = measure_speeds([0], budget_s=60.0)  # a busy machine needs longer for the import
    assert report.failures == ()
    speeds = report.speeds
    assert speeds.fp32_one_core_flop_per_s > 1e8
    if read_cpu().computes_bf16:
        assert speeds.bf16_one_core_flop_per_s > 1e6
    else:  # it is emulated: on the slowest machine that took all of the time
        assert speeds.bf16_one_core_flop_per_s is speeds.bf16_all_cores_flop_per_s is None
    assert speeds.copy_one_core_bytes_per_s > 1e8
    assert speeds.jpeg_one_core_images_per_s > 10

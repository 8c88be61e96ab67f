import json
import subprocess
import sys

import pytest

from probes.cpu import read_cpu
from probes.errors import SpeedProbeError
from probes.hardware import Speeds
from probes.speed import best_rate, measure_speeds


class HandClock:
    """A clock that only moves when told to."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


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


@pytest.mark.timeout(100)
def test_limit_is_that_of_the_best_way_to_compute():
    """Training exceeded the limit that one product by MKL had shown, on AMD processors."""
    program = (
        "import json, torch\n"
        "from probes import speed\n"
        "torch.set_num_threads(1)\n"
        "ways = speed._multiply, speed._multiply_by_onednn, speed._convolve\n"
        "rates = [speed._best_rate_of(way, torch.float32, 0.5) for way in ways]\n"
        "print(json.dumps([rates, speed._compute_rate(torch.float32, 1, 1.5)]))\n"
    )
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rates, limit = json.loads(output)
    assert limit > 0.7 * max(rates)


@pytest.mark.timeout(100)
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

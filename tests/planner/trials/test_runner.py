"""One plan run for a short time: how it is measured and how it can fail."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from launch.errors import UseCaseError
from launch.plan import Plan
from launch.workers.case_description import find_compiler
from launch.workers.fork_server_pool import ForkServerPool
from launch.workload import Workload
from planner.trials.result import Outcome
from planner.trials.runner import TrialRunner
from probes.node import probe
from probes.timing import Interval

TINY = Path(__file__).parents[2] / "launch" / "tiny_cases.py"
ALONE = Plan(strategy="sequential", node_batch=8)


@pytest.fixture(scope="module")
def runner_of():
    """Give a runner for a tiny use case; its workers end with the module."""
    node = probe(quick=True)
    with ForkServerPool() as servers:
        yield lambda case: TrialRunner(Workload(use_case=f"{TINY}:{case}"), node, servers)


def test_plan_is_measured_until_it_is_known(runner_of):
    steps = []
    result = runner_of("Sgd").run(ALONE, time_limit_s=60, target_s=5, on_step=steps.append)
    assert result.outcome is Outcome.OK
    assert len(result.measurement.samples_s) >= 5
    assert len(result.measurement.warmup_s) >= 1
    assert len(steps) == len(result.measurement.warmup_s) + len(result.measurement.samples_s)
    assert result.peak_memory_bytes > 10 * 2**20
    assert result.throughput_samples_per_s().median > 0


@pytest.mark.long
@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler, or no headers of Python")
def test_time_that_a_plan_took_to_compile_is_told(runner_of):
    compiled = replace(ALONE, compile=True)
    result = runner_of("Sgd").run(compiled, time_limit_s=200, target_s=1)
    assert result.outcome is Outcome.OK, result.reason
    assert 0 < result.compile_s < result.elapsed_s
    assert runner_of("Sgd").run(ALONE, time_limit_s=60, target_s=1).compile_s is None


def test_plan_that_is_far_behind_is_ended_early(runner_of):
    fast = Interval(median=1e-9, low=1e-9, high=1e-9, count=9)
    result = runner_of("Sgd").run(ALONE, time_limit_s=60, incumbent_s=fast)
    assert result.outcome is Outcome.SLOWER
    assert "more time per sample than the best plan" in result.reason
    assert len(result.measurement.samples_s) < 5


@pytest.mark.parametrize(
    ("case", "outcome", "reason"),
    [
        ("Raises", Outcome.CRASH, "ArithmeticError: the loss is beyond me"),
        ("Leaves", Outcome.CRASH, "exit code 3"),
        ("LeavesQuietly", Outcome.CRASH, "exit code 0 before its work was done"),
        ("Dies", Outcome.CRASH, "killed by signal 9"),
        ("TooLarge", Outcome.OUT_OF_MEMORY, "memory"),
        ("NotANumber", Outcome.NAN_LOSS, "loss=nan at step 0"),
    ],
)
def test_failure_is_a_result_with_its_reason(runner_of, case, outcome, reason):
    result = runner_of(case).run(ALONE, time_limit_s=60)
    assert result.outcome is outcome
    assert reason in result.reason


def test_crash_keeps_the_last_lines_of_the_log(runner_of):
    result = runner_of("Raises").run(ALONE, time_limit_s=60)
    assert result.log_tail.splitlines()[-1] == "ArithmeticError: the loss is beyond me"


def test_hanging_plan_ends_at_its_time_limit_with_all_its_processes(runner_of):
    pair = Plan(strategy="processes", node_batch=8, processes=2, replicas=2)
    if len(os.sched_getaffinity(0)) < 2:
        pair = ALONE
    result = runner_of("Hangs").run(pair, time_limit_s=1)
    assert result.outcome is Outcome.TIME_LIMIT
    server = psutil.Process(runner_of("Hangs").server_pid)
    assert server.children(recursive=True) == []


def test_plan_too_large_for_the_node_is_refused_without_starting(runner_of):
    plan = Plan(strategy="processes", node_batch=4096, processes=4096, replicas=4096)
    result = runner_of("Sgd").run(plan, time_limit_s=60)
    assert result.outcome is Outcome.CRASH
    assert "usable_cores=" in result.reason


def test_trials_go_on_after_the_fork_server_was_killed(runner_of):
    runner = runner_of("Sgd")
    psutil.Process(runner.server_pid).kill()
    results = [runner.run(ALONE, time_limit_s=60, target_s=1) for _ in range(2)]
    assert results[-1].outcome is Outcome.OK


def test_nothing_of_a_killed_fork_server_is_left_open(runner_of):
    runner = runner_of("Sgd")
    server = psutil.Process(runner.server_pid)
    server.kill()
    while server.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = runner.run(ALONE, time_limit_s=60, target_s=1)
    assert result.outcome is Outcome.OK
    assert not [found for found in caught if found.category is ResourceWarning]


def test_use_case_is_described(runner_of):
    facts = runner_of("Sgd").describe()
    assert (facts.default_batch, facts.train_samples, facts.validation_samples) == (8, 160, 10)
    assert facts.max_stages > 1


def test_use_case_whose_data_never_come_is_given_up_with_the_line_that_waits(runner_of):
    where = r"idle for \d+ s, File .*tiny_cases.py\", line \d+ in dataset$"
    with pytest.raises(UseCaseError, match=where):
        runner_of("NoData").describe(idle_limit_s=2)


def test_use_case_with_a_fault_is_one_line(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("class Case:\n    name = 'x'\n    this is no Python\n")
    with ForkServerPool() as servers, pytest.raises(UseCaseError) as raised:
        TrialRunner(Workload(use_case=f"{file}:Case"), probe(quick=True), servers).describe()
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)

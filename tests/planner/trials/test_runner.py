"""Plans that are started to be timed: their steps, their pauses, and how they can fail."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from worker_groups import count_oom_kills, wait_until_gone

from launch.errors import UseCaseError
from launch.plan import Plan
from launch.workers.case_description import find_compiler
from launch.workload import Workload
from planner.trials.contender import TrialFailedError
from planner.trials.result import Outcome
from planner.trials.runner import TrialRunner
from probes.hardware import Gpu, Hardware
from probes.node import probe
from tests.probes.recorded_nvml import RecordedNvml

TINY = Path(__file__).parents[2] / "launch/cases/tiny_cases.py"
ALONE = Plan(strategy="sequential", node_batch=8)


@pytest.fixture(scope="module")
def runner_of(servers):
    """Give a runner for a tiny use case, or for one of another file."""
    node = probe(quick=True)
    return lambda case, file=TINY: TrialRunner(Workload(use_case=f"{file}:{case}"), node, servers)


@contextlib.contextmanager
def started(runner, plan=ALONE):
    contender = runner.start(plan)
    try:
        yield contender
    finally:
        contender.close()


def worker_states(servers):
    server = psutil.Process(servers.get().pid)
    return {child.status() for child in server.children(recursive=True)}


def test_precisions_for_which_no_time_is_left_are_not_tried():
    """After the time for all of them a process was still started for each that was left."""
    runner = TrialRunner(Workload(use_case=f"{TINY}:Sgd"), probe(quick=True), servers=None)
    found = runner.check_precisions(ALONE, ("bf16", "bf16_internal"), time_limit_s=0.0)
    assert found == dict.fromkeys(
        ("bf16", "bf16_internal"), "its check took more than 0 s: raise --budget"
    )


def test_plan_makes_as_many_steps_as_it_is_told_and_then_stands_still(runner_of, servers):
    runner = runner_of("Sgd")
    with started(runner) as contender:
        steps = contender.make_steps(3, time_limit_s=60)
        assert [step.step for step in steps] == [0, 1, 2]
        assert all(step.samples == 8 and step.time_s > 0 for step in steps)
        assert worker_states(servers) == {psutil.STATUS_STOPPED}
        assert [step.step for step in contender.make_steps(2, time_limit_s=60)] == [3, 4]
        assert contender.peak_memory_bytes > 10 * 2**20


def test_plan_is_started_by_the_server_for_its_environment(servers):
    """Of which some are read when a process starts, such as how OpenMP's threads wait."""

    class Asked(list):
        def get(self, plan=None):
            self.append(plan)
            return servers.get()

    asked, node = Asked(), probe(quick=True)
    with started(TrialRunner(Workload(use_case=f"{TINY}:Sgd"), node, asked)):
        assert asked == [ALONE]


_BURN = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"


def test_process_that_computes_now_and_then_is_seen_in_those_turns(runner_of):
    """The plan itself sleeps, and leaves the cores to whoever wants them."""
    cores = probe(quick=True).cpu.usable_cores
    with started(runner_of("SlowInChannelsLast")) as contender:
        contender.make_steps(2, time_limit_s=60)
        found = []
        for _ in range(3):
            burners = [psutil.Popen([sys.executable, "-c", _BURN]) for _ in range(cores)]
            while used_s(burners) < 0.05:  # they start
                time.sleep(0.01)
            began, before_s = time.monotonic(), used_s(burners)
            contender.make_steps(20, time_limit_s=60)
            burned_cores = (used_s(burners) - before_s) / (time.monotonic() - began)
            for burner in burners:
                burner.kill()
                burner.wait()
            found.append((contender.disturbance, burned_cores))
    if found[0][0].others_cores is None:
        pytest.skip("a quota grants time on cores of all")
    assert all(one.is_disturbed(ALONE.threads, cores) for one, _ in found)
    # All that they used is there, and what others of this machine use beside them.
    assert all(one.others_cores > 0.8 * burned for one, burned in found)
    assert sum(burned for _, burned in found) > 0.1


def test_heat_of_the_gpus_of_a_plan_is_seen_in_its_turns(servers, monkeypatch):
    """The plan computes on the CPU, and NVML is recorded: this machine may have no GPU."""
    nvml = RecordedNvml(HandleByUUID={"GPU-a": 0}, CurrentClocksEventReasons={0: 0x40})
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    gpu = Gpu(nvml_index=0, cuda_index=0, uuid="GPU-a")
    node = replace(probe(quick=True), gpus=(gpu,))
    plan = replace(ALONE, devices=("cuda:0",))
    assert node.gpu_uuids(plan.devices) == node.gpu_uuids() == ("GPU-a",)
    assert node.gpu_uuids(ALONE.devices) == replace(node, gpus=()).gpu_uuids() == ()
    monkeypatch.setattr(Hardware, "gpu_uuids", lambda *_: ("GPU-a",))
    runner = TrialRunner(Workload(use_case=f"{TINY}:Sgd"), node, servers)
    with started(runner) as contender:
        contender.make_steps(1, time_limit_s=60)
        assert nvml.is_open
        assert contender.disturbance.slowed_gpus == 1
    assert not nvml.is_open


def used_s(processes):
    times = [process.cpu_times() for process in processes]
    return sum(time.user + time.system for time in times)


def test_time_in_which_a_plan_stands_still_is_in_no_step(runner_of):
    with started(runner_of("Sgd")) as contender:
        contender.make_steps(3, time_limit_s=60)

        def longest_step_after_a_second() -> float:
            time.sleep(1.0)
            return max(step.time_s for step in contender.make_steps(3, time_limit_s=60))

        # One is enough: a step may take a second where others compute, but not each time.
        assert any(longest_step_after_a_second() < 1.0 for _ in range(5))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs 2 cores")
def test_plans_take_turns_on_the_same_cores(runner_of):
    runner = runner_of("Sgd")
    pair = Plan(strategy="processes", node_batch=8, processes=2, replicas=2)
    with started(runner) as alone, started(runner, pair) as both:
        for number in range(3):
            for contender in (alone, both):
                (step,) = contender.make_steps(1, time_limit_s=60)
                assert step.step == number


def test_loader_processes_of_a_plan_that_stands_still_read_nothing_ahead(runner_of):
    plan = replace(ALONE, loader_workers=2)
    with started(runner_of("SlowInput"), plan) as contender:
        contender.make_steps(6, time_limit_s=60)
        time.sleep(0.5)  # enough for as many batches as are read ahead
        (step,) = contender.make_steps(1, time_limit_s=60)
        assert step.read_ahead <= 1


@pytest.mark.long
@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler, or no headers of Python")
def test_time_that_a_plan_took_to_compile_is_told(runner_of):
    with started(runner_of("Sgd"), replace(ALONE, compile=True)) as contender:
        contender.make_steps(3, time_limit_s=200)
        assert contender.compile_s > 0
    with started(runner_of("Sgd")) as contender:
        contender.make_steps(3, time_limit_s=60)
        assert contender.compile_s is None


@pytest.mark.parametrize(
    ("case", "outcome", "reason"),
    [
        ("Dies", Outcome.CRASH, "killed by signal 9"),
        ("TooLarge", Outcome.OUT_OF_MEMORY, "memory"),
        ("NotANumber", Outcome.NAN_LOSS, "loss=nan at step 0"),
    ],
)
def test_failure_is_a_result_with_its_reason(runner_of, case, outcome, reason):
    with started(runner_of(case)) as contender, pytest.raises(TrialFailedError) as failed:
        contender.make_steps(3, time_limit_s=60)
    assert failed.value.outcome is outcome
    assert reason in failed.value.reason


def test_kills_for_memory_are_looked_up_only_once_a_worker_fails(runner_of, monkeypatch):
    """The story: files of the kernel were read at every step of every trial."""
    count_oom_kills(monkeypatch, 1)
    with started(runner_of("Dies")) as contender:
        contender.make_steps(1, time_limit_s=60)
        with pytest.raises(TrialFailedError, match=r"\(out of memory\)$") as failed:
            contender.make_steps(3, time_limit_s=60)
    assert failed.value.outcome is Outcome.OUT_OF_MEMORY


def test_crash_keeps_the_last_lines_of_the_log(runner_of):
    with started(runner_of("Raises")) as contender, pytest.raises(TrialFailedError) as failed:
        contender.make_steps(1, time_limit_s=60)
    assert failed.value.outcome is Outcome.CRASH
    assert "ArithmeticError: the loss is beyond me" in failed.value.reason
    assert failed.value.log_tail.splitlines()[-1] == "ArithmeticError: the loss is beyond me"


def test_hanging_plan_ends_at_its_time_limit_with_all_its_processes(runner_of, servers):
    pair = Plan(strategy="processes", node_batch=8, processes=2, replicas=2)
    if len(os.sched_getaffinity(0)) < 2:
        pair = ALONE
    runner = runner_of("Hangs")
    with started(runner, pair) as contender, pytest.raises(TrialFailedError) as failed:
        contender.make_steps(1, time_limit_s=1)
    assert failed.value.outcome is Outcome.TIME_LIMIT
    assert failed.value.reason == "step 1 did not end in the time that the plan had"
    assert worker_states(servers) == set()


def test_plan_too_large_for_the_node_is_refused_without_starting(runner_of):
    plan = Plan(strategy="processes", node_batch=4096, processes=4096, replicas=4096)
    with pytest.raises(TrialFailedError, match="usable_cores="):
        runner_of("Sgd").start(plan)


def test_workers_end_with_their_fork_server_and_trials_go_on_with_nothing_of_it_left_open(
    runner_of, servers
):
    runner = runner_of("Sgd")
    server = psutil.Process(servers.get().pid)
    with started(runner) as contender:
        workers = [worker.pid for worker in server.children()]
        assert workers
        server.kill()
        wait_until_gone(workers)
        with pytest.raises(TrialFailedError):
            contender.make_steps(1, time_limit_s=60)
    while psutil.pid_exists(server.pid) and server.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with started(runner) as contender:
            assert len(contender.make_steps(1, time_limit_s=60)) == 1
    assert not [found for found in caught if found.category is ResourceWarning]


def test_use_case_is_described(runner_of):
    facts = runner_of("Sgd").describe()
    assert (facts.default_batch, facts.train_samples, facts.validation_samples) == (8, 160, 10)
    assert facts.max_stages > 1


def test_use_case_that_was_checked_is_only_timed_once_more(runner_of):
    heard, runner = [], runner_of("Misspelt")
    digest = runner.describe(heard.append).digest
    (warned,) = heard
    assert "is schedule meant?" in warned.message
    assert runner.describe(heard.append, checked_digest=digest).sample_s > 0
    assert heard == [warned]


def test_use_case_whose_data_never_come_is_given_up_with_the_line_that_waits(
    runner_of, monkeypatch
):
    monkeypatch.setattr("planner.trials.lone_task.DATA_TIMEOUT_S", 2.0)
    where = r"idle for \d+ s, File .*failing.py\", line \d+ in dataset$"
    with pytest.raises(UseCaseError, match=where):
        runner_of("NoData").describe()


@pytest.mark.parametrize(("kills", "why"), [(0, ""), (1, r" \(out of memory\)")])
def test_use_case_for_which_memory_is_short_before_training_says_so(
    kills, why, runner_of, monkeypatch
):
    """The story: only of trials was it told why the kernel had ended a process."""
    count_oom_kills(monkeypatch, kills)
    said = rf"DiesWhileBuilding failed before training: killed by signal 9 \(SIGKILL\){why}$"
    with pytest.raises(UseCaseError, match=said):
        runner_of("DiesWhileBuilding").describe()


def test_use_case_with_a_fault_is_one_line(runner_of, tmp_path):
    file = tmp_path / "broken.py"
    file.write_text("class Case:\n    name = 'x'\n    this is no Python\n")
    with pytest.raises(UseCaseError) as raised:
        runner_of("Case", file).describe()
    assert "\n" not in str(raised.value)
    assert str(file) in str(raised.value)

"""Training through torch.compile: the same weights, its time reported, its failures in a line."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from one_process import error_of
from strategy_homes import guessed

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.reports import Compiled, StepDone
from launch.strategies import check_plan
from launch.training.compiled import set_compiler_cache
from launch.workers.case_description import find_compiler
from launch.workers.group import WorkerEnded, explain_failure

needs_compiler = pytest.mark.skipif(
    find_compiler() is None, reason="no C++ compiler, or no headers of Python"
)
TWO = {"processes": 2, "replicas": 2}


@needs_compiler
@pytest.mark.parametrize(
    ("plan", "epochs"),
    [
        (Plan(strategy="sequential", node_batch=8, micro_batches=2, compile=True), 2),
        (Plan(strategy="processes", node_batch=8, compile=True, **TWO), 1),
        (Plan(strategy="gpu_data", node_batch=8, compile=True, **TWO), 1),
    ],
    ids=["sequential", "processes", "gpu_data"],
)
@pytest.mark.long
def test_weights_equal_those_of_one_process_and_rests_of_epochs_are_not_compiled(
    plan, epochs, training
):
    """The story: each last batch of another size cost as much time as the compiler takes."""
    assert error_of(training, plan, "Uneven", epochs=epochs) < 1e-4
    (compiled,) = training.reports(Compiled)
    steps = training.reports(StepDone)
    assert [step.samples for step in steps] == [8, 8, 1] * epochs
    assert compiled.time_s == pytest.approx(steps[0].time_s - steps[1].time_s)
    assert max(step.time_s for step in steps[1:]) < compiled.time_s


@needs_compiler
def test_what_the_compiler_fails_at_is_one_line(training):
    plan = Plan(strategy="sequential", node_batch=8, compile=True)
    with training.start(training.task("CannotBeCompiled", plan)) as group:
        failures = []
        while not isinstance(event := group.next_event(60), WorkerEnded):
            failures.append(explain_failure(group, event))
    (failure,) = filter(None, failures)
    assert failure.error == "CompilerError"
    assert failure.message.endswith(": use compile=False")
    assert "this operator has no kernel" in failure.message


def test_replicas_in_threads_are_not_compiled(tiny_facts, two_cores):
    plan = Plan(strategy="threads", node_batch=8, replicas=2, threads_per_process=2, compile=True)
    with pytest.raises(InvalidPlanError, match=r"compile=True: torch\.compile is not safe"):
        check_plan(plan)
    facts = replace(tiny_facts, can_compile=True)
    for plan in guessed("threads", facts, two_cores, **{"threads.compile": True}):
        assert plan.compile == (plan.replicas == 1)


def test_the_compiler_is_the_one_that_torch_would_call(tmp_path):
    compiler = tmp_path / "mine++"
    compiler.touch(mode=0o755)
    environment = {"CXX": f"{compiler.name} -std=c++20", "PATH": str(tmp_path)}
    assert find_compiler(environment) in (str(compiler), None)
    assert find_compiler({"PATH": str(tmp_path)}) is None


def test_kernels_are_kept_in_ddlplans_own_cache(tmp_path, monkeypatch):
    """The story: torch's own folder in /tmp has a name that any user can take first."""
    monkeypatch.setenv("DDLPLAN_CACHE", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "")  # so that it is put back afterwards
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    set_compiler_cache()
    assert Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]) == tmp_path / "compiled"
    assert (tmp_path / "compiled").is_dir()

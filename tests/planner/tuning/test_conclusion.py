"""What is said first of a search that gained nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.workload import Workload
from planner.store import Store
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.tune_request import TuneRequest
from probes.hardware import CoreLimit, Cpu, Hardware, Memory
from probes.timing import Measurement

CPU = Cpu(
    architecture="x86_64",
    logical_cores=2,
    usable_cores=2,
    core_ids=(0, 1),
    limits=(CoreLimit(source="test", cores=2),),
)
NODE = Hardware(node="n1", cpu=CPU, memory=Memory(total_bytes=2**33, usable_bytes=2**33))
CASE = CaseFacts(
    default_batch=32,
    train_samples=5418,
    validation_samples=585,
    parameter_count=57_000_000,
    parameter_bytes=228_000_000,
    max_stages=8,
    digest="sha256:1",
)
BASELINE = Plan(strategy="sequential", node_batch=32)
DEFAULTS = Plan(strategy="threads", node_batch=32, threads_per_process=2)
OTHER = Plan(strategy="pipeline", node_batch=32, processes=2)


@pytest.fixture
def concluded(tmp_path):
    """Conclude from a race of PyTorch's defaults, a second per step, and another plan."""

    def do(step_s: float, plan: Plan = OTHER, **limits):
        request = TuneRequest(workload=Workload(use_case="simplebig"), **limits)
        with Store.open(str(tmp_path / "planner.db")) as store:
            findings = Findings(request, CASE, NODE, {}, store)
            for role, tried, time_s in (
                (Role.BASELINE, BASELINE, 1.9),
                (Role.DEFAULTS, DEFAULTS, 1.0),
                (Role.SEARCH, plan, step_s),
                (Role.FINAL, plan, step_s),
            ):
                times_s = tuple(time_s * (1 + 0.001 * (i % 3)) for i in range(12))
                measurement = Measurement(
                    warmup_s=(time_s,), samples_s=times_s, rounds=tuple(range(12)), starts=2
                )
                findings.add(
                    TrialResult(
                        plan=tried,
                        role=role,
                        outcome=Outcome.OK,
                        measurement=measurement,
                        elapsed_s=13 * time_s,
                    )
                )
            return conclude(findings, store)

    return do


def test_strategy_that_ends_slower_than_the_defaults_says_so_first(concluded):
    outcome = concluded(2.0, strategies=("pipeline",))
    assert outcome.plan.plan == OTHER
    assert outcome.plan.speedup.median == pytest.approx(0.5, rel=0.01)
    first = outcome.warnings[0]
    assert first.startswith("the plan found is slower than PyTorch's defaults, 0.50")
    assert first.endswith(" times as fast: leave out --strategies")


def test_batch_that_ends_slower_than_the_defaults_says_so_first(concluded):
    outcome = concluded(2.0, replace(OTHER, node_batch=16), batch_size=16)
    assert outcome.plan.speedup.median == pytest.approx(0.25, rel=0.01)
    assert outcome.warnings[0].endswith(" times as fast: leave out --batch-size")


def test_search_that_gained_something_has_nothing_to_say_first(concluded):
    assert concluded(0.5, strategies=("pipeline",)).warnings == ()

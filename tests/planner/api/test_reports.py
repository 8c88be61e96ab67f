"""Measuring for a report: real searches and trainings; only the best plan of all is kept."""

from __future__ import annotations

import shutil
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path

import paper_cases
import pytest
from imagined_machines import node_of
from store_cases import write_trials

from launch.errors import InvalidPlanError
from launch.reports import Noted, StepDone
from planner.api import HostAccess, Hosts, TuneResult, plans, reports, trainings
from planner.api.reports import measuring
from planner.api.reports.measuring import MeasureRequest, _Measuring
from planner.cancellation import Cancellation
from planner.errors import CancelledError, NoPlanError
from planner.paper_tables import load_paper
from planner.paper_tables._base import Paper
from planner.paper_tables._collecting import collect
from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._wanted import WantedPlan, WantedTraining, WantedTrial, trial_key
from planner.records.training_record import TrainingStatus
from planner.store import Store
from planner.sweeps.device_settings import make_device_settings
from planner.trials.reports import TrialEnded, ignore
from probes.hardware import Gpu

CASES = Path(__file__).parents[1] / "steady_cases.py"
STEADY = f"{CASES}:Steady"


class OneStrategy(Paper):
    """Wants one strategy of a use case whose steps are short."""

    name = "one_strategy"
    order = 1
    title = citation = "one strategy"
    epochs = 1000

    def __init__(self, case=STEADY):
        self.use_cases = (case,)

    def tables(self, held):
        return ()

    def plots(self, held):
        return ()

    def wanted(self, held, node):
        (case,) = self.use_cases
        study = held.study_of(case, node.fingerprint())
        trial = None if study is None else study.fastest("threads")
        if trial is None:
            yield WantedTrial(use_case=case, strategy="threads", least_s=1.0, weight=0.05)
        if study is None or not study.has_plan:
            yield WantedPlan(use_case=case, least_s=1.0, weight=0.05)
        if not held.trained(case):
            after = trial_key(case, "threads")
            yield WantedTraining(
                use_case=case, name="threads", trial=trial, after=after, epochs=self.epochs
            )


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Measure into a database with short times; gives what came of it and what was said."""
    monkeypatch.chdir(tmp_path)
    for name, value in (
        ("_LEAST_S", 4.0),
        ("_STARTING_S", 0.0),
        ("_USE_S", 3.0),
        ("_FIRST_S", 4.0),
    ):
        monkeypatch.setattr(measuring, name, value)

    def do(paper, budget_s=100.0, **more):
        said = []

        def listener(report, host=None):
            if isinstance(report, Noted):
                said.append(report.message)
            elif isinstance(report, StepDone | TrialEnded):
                # It may be killed at any report: what is stored then, launches choose from.
                assert all(one.stored.study_id is not None for one in plans.find())

        request = MeasureRequest(
            budget_s=budget_s, hosts=Hosts.this_machine(HostAccess(allow_root=True))
        )
        run = _Measuring(request, [paper], "planner.db", listener, **more)
        return run.run(), said

    return do


def no_cancellation():
    return nullcontext(Cancellation())


@pytest.mark.long
@pytest.mark.usefixtures("shared_servers")
def test_strategies_are_tried_and_trained_with_and_only_the_best_plan_is_kept(
    measure, probed_database, tmp_path
):
    shutil.copy(probed_database, tmp_path / "planner.db")
    paper = OneStrategy()
    done, said = measure(paper, make_cancellation=no_cancellation)
    assert done.reasons == {}
    assert [key.split()[0] for key in done.done] == ["trial", "plan", "training"]
    assert any(line.startswith(f"training {STEADY} with threads") for line in said)
    held = collect([paper], "planner.db", {})
    assert held.of(STEADY)[0].fastest("threads") is not None
    (training,) = trainings.find()
    assert training.state is TrainingStatus.CANCELLED
    assert training.steps > 4
    assert training.weights is None
    (kept,) = plans.find()
    assert kept.stored.study_id is not None
    assert not list(Path("runs").rglob("*.safetensors"))

    again, said = measure(paper, make_cancellation=no_cancellation)
    assert (again.done, dict(again.reasons), said) == ((), {}, [])


def test_measuring_goes_on_with_the_data_of_the_study_that_is_shown(tmp_path):
    """It measured generated data into another study, which the report did not show."""
    named, shown = tmp_path / "named", tmp_path / "shown"
    named.mkdir()

    def measured_with(**asked):
        run = _Measuring(MeasureRequest(data=asked), [], "none.db", ignore, no_cancellation)
        study = paper_cases.study()
        facts = replace(study.record.facts, data=str(shown))
        record = replace(study.record, facts=facts, fingerprint=run._node.fingerprint())
        run._held = StoredEvidence(studies={"simplebig": [replace(study, record=record)]})
        return run._workload("simplebig").data

    assert measured_with() is None  # the folder is gone
    shown.mkdir()
    assert measured_with() == str(shown)
    assert measured_with(simplebig=named) == str(named)


def test_sweep_that_is_measured_is_of_gpus_of_different_kinds_as_the_sweep_itself(
    tmp_path, monkeypatch
):
    """The story: a quick probe does not know CUDA's order of them, so that as many devices were
    wanted as there are cores, and the sweep, which asks torch, refused them."""
    gpus = [
        Gpu(nvml_index=number, cuda_index=number, name=name, uuid=f"GPU-{number}")
        for number, name in enumerate(("A100", "T4"))
    ]
    node = replace(node_of(64), gpus=tuple(gpus))
    monkeypatch.setattr(measuring, "probe_for_plans", lambda: node)
    db = str(tmp_path / "none.db")
    papers = [load_paper("cifar_scaling")]
    (wanted,) = _Measuring(MeasureRequest(), papers, db, ignore, no_cancellation)._open()
    settings = make_device_settings(wanted.devices, node)
    assert [setting.plan.devices for setting in settings] == [("cuda:0",), ("cuda:0", "cuda:1")]


@pytest.mark.usefixtures("shared_servers")
def test_a_use_case_that_is_not_there_is_a_reason_and_no_end(measure):
    done, said = measure(OneStrategy("nowhere_cnn"), make_cancellation=no_cancellation)
    assert done.done == ()
    assert "nowhere_cnn" in done.reasons["trial nowhere_cnn threads"]
    assert sum(line.startswith("timing ") for line in said) == 1


def test_what_had_too_little_time_is_tried_once_more_with_what_is_left(measure, monkeypatch):
    """Half an hour ended after 25 minutes, and "times one core" was missing in each row."""
    times_s = []

    def take(_, wanted, share_s):
        times_s.append(share_s)
        if wanted.strategy == "threads" and len(times_s) < 3:
            raise NoPlanError("no trial succeeded")

    class TwoStrategies(OneStrategy):
        def wanted(self, held, node):
            if len(times_s) < 3:
                yield WantedTrial(use_case=STEADY, strategy="threads", least_s=1.0)
            if len(times_s) < 2:
                yield WantedTrial(use_case=STEADY, strategy="sequential", least_s=1.0)

    monkeypatch.setattr(_Measuring, "_measure", take)
    done, _ = measure(TwoStrategies(), make_cancellation=no_cancellation)
    assert done.done == (trial_key(STEADY, "threads"), trial_key(STEADY, "sequential"))
    assert done.reasons == {}
    assert times_s[2] > 1.5 * times_s[0]


def test_time_that_holds_no_comparison_is_a_reason_of_the_report_and_tried_again(
    measure, monkeypatch
):
    """It named a budget for `tune`, and what was left of the time went to nothing."""
    asked = []

    def refuse(request, **_):
        asked.append(request.strategies)
        raise InvalidPlanError("--budget 120s: no two plans can be compared: use --budget 5m")

    monkeypatch.setattr("planner.api.tuning.tune", refuse)
    done, _ = measure(OneStrategy(), make_cancellation=no_cancellation)
    assert asked.count(("threads",)) == 2
    why = done.reasons[trial_key(STEADY, "threads")]
    assert "of --budget held no comparison of plans" in why
    assert why.endswith(": the same command goes on")


@pytest.mark.parametrize("is_over", [True, False])
def test_what_is_over_as_its_time_is_up_is_measured_and_no_reason(measure, monkeypatch, is_over):
    """The story: a figure that was there had the reason "not over after 20m 0s" beside it."""
    for name in ("_OVERTIME", "_OVERTIME_S"):
        monkeypatch.setattr(measuring, name, 0.0)

    def tune(request, *, cancellation, **_):
        with suppress(CancelledError):
            cancellation.wait(60.0)
        return TuneResult(nodes=(), elapsed_s=1.0, interrupted=not is_over)

    monkeypatch.setattr("planner.api.tuning.tune", tune)
    done, _ = measure(OneStrategy(), make_cancellation=no_cancellation)
    key = trial_key(STEADY, "threads")
    assert (key in done.done, key not in done.reasons) == (is_over, is_over)
    assert is_over or done.reasons[key].startswith("not over after 0.0s, as the machine is slow")


def test_no_time_is_a_reason_with_the_way_on(measure):
    done, said = measure(OneStrategy(), budget_s=0.01, make_cancellation=no_cancellation)
    assert done.done == ()
    assert "the same command goes on" in done.reasons[f"trial {STEADY} threads"]
    assert said == []


def test_cancellation_ends_all_of_it(measure):
    cancelled = Cancellation()
    cancelled.cancel()
    with pytest.raises((CancelledError, KeyboardInterrupt)):
        measure(OneStrategy(), make_cancellation=lambda: nullcontext(cancelled))


def test_what_is_shown_and_what_is_written_is_of_one_reading(tmp_path, monkeypatch):
    """The story: `report --out` read all trials twice, and its files had what came meanwhile."""
    path = str(tmp_path / "lab.db")
    write_trials(path)
    report = reports.StoredReport(None, reasons=None, data=None, db=path)
    shown = report.sections()
    monkeypatch.setattr(Store, "open", None)
    written = report.sections(names_db=True)
    assert f"--measure --db {path}" in str(written)
    assert [one.name for one in shown] == [one.name for one in written]


def test_papers_are_made_in_their_order_without_a_database(tmp_path):
    made = reports.make(db=str(tmp_path / "none.db"))
    assert [section.name for section in made] == ["lerat_2022", "mnist_batches", "cifar_scaling"]
    assert not list(tmp_path.iterdir())

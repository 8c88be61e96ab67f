"""Reports of a search and of a training become the progress that other programs are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sweep_samples import sample_record
from training_samples import EPOCH
from worth_cases import FACTS, TRIALS

from launch.reports import DataProgress, Described, Noted, StepDone, Working
from planner.records.progress import ContenderStanding
from planner.supervision.search_listener import SearchListener
from planner.supervision.sweep_listener import SweepListener
from planner.supervision.training_listener import TrainingListener
from planner.sweeps.reports import SweepOpened
from planner.trials.reports import RoundEnded, StudyOpened, TrialEnded, TrialStarted, ignore
from planner.trials.result import Role
from probes import codec


class Row:
    """Takes what a job reports in place of the database."""

    def __init__(self):
        self.progress, self.links = None, {}

    def report(self, progress=None, **links):
        self.progress = progress or self.progress
        self.links |= {name: value for name, value in links.items() if value is not None}


FIRST, SECOND = TRIALS[0].result, TRIALS[1].result


@pytest.fixture
def row():
    return Row()


def test_search_tells_what_it_does_and_in_which_study(row):
    told = []
    listener = SearchListener(row, lambda report, _=None: told.append(report), budget_s=60.0)
    reports = [Working(what="loading"), StudyOpened(study_id=3), Noted(message="probing")]
    for report in reports:
        listener(report)
    assert told == reports
    assert row.links == {"study_id": 3}
    assert (row.progress.doing, row.progress.left_s) == ("probing", None)
    listener(TrialStarted(plan=FIRST.plan, role=Role.SEARCH, left_s=40.0))
    assert row.progress.trial == FIRST.plan
    assert 0 < row.progress.left_s <= 40


def test_search_tells_who_leads_and_who_left_and_why(row):
    listener = SearchListener(row, ignore, budget_s=60.0)
    leader = ContenderStanding(plan=FIRST.plan, throughput_samples_per_s=50.0, is_leading=True)
    listener(TrialEnded(result=FIRST, number=0, is_best=True))
    listener(RoundEnded(left_s=30.0, standings=(leader,)))
    listener(TrialEnded(result=SECOND, number=1))
    progress = row.progress
    assert progress.trials == 2
    assert progress.best_samples_per_s == FIRST.throughput_samples_per_s().median
    assert progress.standings[0] == leader, "it has ended a trial, and races on"
    assert [one.plan for one in progress.standings[1:]] == [SECOND.plan]
    assert progress.standings[1].reason
    assert codec.to_builtins(progress, null_for_nan=True)["standings"][0]["is_leading"] is True


def test_hosts_have_best_plans_of_their_own(row):
    listener = SearchListener(row, ignore, budget_s=60.0)
    listener(TrialEnded(result=FIRST, number=0, is_best=True), "node1")
    assert (row.progress.trials, row.progress.best_samples_per_s) == (1, None)


def step(number: int, epoch: int, loss: float = 0.5) -> StepDone:
    return StepDone(step=number, epoch=epoch, time_s=0.5, samples=8, loss=loss)


def test_training_tells_epoch_steps_loss_and_speed(row):
    listener = TrainingListener(row, ignore, epochs=3)
    listener(DataProgress(what="decoding", done=1, total=9))
    assert (row.progress.doing, row.progress.throughput_samples_per_s) == ("decoding 1/9", None)
    for number in range(2):
        listener(step(number, 0))
    listener(EPOCH)
    listener(step(2, 1, loss=float("nan")))
    progress = row.progress
    assert (progress.epoch, progress.epochs, progress.steps, progress.samples) == (2, 3, 3, 8)
    assert (progress.loss, progress.throughput_samples_per_s) == (None, 16.0)


def test_training_that_was_restarted_counts_no_step_again(row):
    """The story: it had more steps than the training that its job leads to."""
    listener = TrainingListener(row, ignore, epochs=3)
    for number in (0, 1, 2, 0):
        listener(step(number, 0))
    assert row.progress.steps == 1


@pytest.mark.parametrize("made_up", [True, False])
def test_jobs_tell_that_their_data_are_made_up(row, made_up):
    """Their cards showed losses and rates of drawn digits as those of MNIST."""
    sweep = replace(sample_record([32]), is_generated=made_up)
    for listener, report in (
        (
            TrainingListener(row, ignore, epochs=3),
            Described(facts=replace(FACTS, is_generated=made_up)),
        ),
        (
            SearchListener(row, ignore, budget_s=60.0),
            StudyOpened(study_id=3, is_generated=made_up),
        ),
        (SweepListener(row, ignore), SweepOpened(record=sweep, points=())),
    ):
        listener(report)
        assert row.progress.is_generated is made_up

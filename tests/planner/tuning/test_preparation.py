"""What a user hears before a search begins."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_plan import CASE

from launch.errors import InvalidPlanError
from launch.workload import Workload
from planner.trials.runner import TrialRunner
from planner.tuning.preparation import _note_decoded_images, prepare
from planner.tuning.tune_request import TuneRequest
from probes.node import probe
from tests.planner.tuning.recorded_search import GPU

HERE = probe(quick=True)


class Describing(TrialRunner):
    """A runner whose use case was described already, once or several times."""

    def __init__(self, *samples_s: float) -> None:
        self._samples_s = list(samples_s)
        self.checked = []

    def describe(self, *_, checked_digest=None):
        self.checked.append(checked_digest)
        return replace(CASE, default_batch=64, sample_s=self._samples_s.pop(0))


def prepared(*samples_s: float, gpus=(), strategies=None):
    return prepared_by(Describing(*samples_s), gpus=gpus, strategies=strategies).sample_s


def prepared_by(runner, *, gpus=(), strategies=None):
    request = TuneRequest(workload=Workload(use_case="case"), budget_s=60, strategies=strategies)
    node = replace(HERE, gpus=gpus)
    return prepare(request, node, runner, needs_all_strategies=True, listener=lambda *_: None).facts


@pytest.mark.parametrize("verbose", [False, True])
def test_strategies_that_cannot_run_are_one_line_and_their_reasons_are_said_on_request(verbose):
    request, notes = TuneRequest(workload=Workload(use_case="case"), verbose=verbose), []
    prepare(
        request,
        HERE,
        Describing(0.03),
        needs_all_strategies=True,
        listener=lambda report, _host=None: notes.append(report.message),
    )
    told = [note for note in notes if "pipeline" in note]
    if verbose:
        assert [note for note in told if note.startswith("pipeline is not tried: ")] == told
    else:
        assert len(told) == 1
        assert told[0].startswith("not tried here: ")
        assert told[0].endswith(" (--verbose says why)")


def test_budget_is_refused_only_where_a_step_takes_too_long_twice():
    """One reading on a busy machine was 12 s, the next 3.2 s, and a trial's 1.7 s."""
    assert prepared(0.19, 0.03) == 0.03
    assert prepared(0.03) == 0.03
    with pytest.raises(InvalidPlanError, match="steps of 64 samples take about 12 s here"):
        prepared(0.19, 0.20)


def test_steps_are_timed_once_more_without_the_check_of_the_loss():
    runner = Describing(0.19, 0.03)
    assert prepared_by(runner).sample_s == 0.03
    assert runner.checked == [None, CASE.digest]


HIDDEN = replace(GPU, cuda_index=None)


@pytest.mark.parametrize(("gpu", "strategies"), [(HIDDEN, None), (GPU, ("threads",))])
def test_budget_is_held_against_steps_on_the_cpu_where_no_plan_may_use_a_gpu(gpu, strategies):
    """The story: who hid a machine's GPU heard only after the search that no two plans had been
    compared."""
    with pytest.raises(InvalidPlanError, match="steps of 64 samples take about 12 s here"):
        prepared(0.19, 0.20, gpus=(gpu,), strategies=strategies)
    assert prepared(0.19, gpus=(GPU,)) == 0.19


def test_room_that_decoded_pictures_need_is_said_only_where_they_are_kept():
    request, notes = TuneRequest(workload=Workload(use_case="case")), []
    pictures = replace(CASE, inputs=("files", "cache"), pixel_bytes=2**20)
    assert _note_decoded_images(request, pictures, notes.append) == 2**20
    (said,) = notes
    assert said.startswith("decoded pictures: 1.00 MiB in ")
    for without, facts in ((replace(request, no_cache=True), pictures), (request, CASE)):
        assert _note_decoded_images(without, facts, notes.append) is None
    assert len(notes) == 1

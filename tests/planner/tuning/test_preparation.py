"""What a user hears before a search begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from launch.workload import Workload
from planner.trials.runner import TrialRunner
from planner.tuning.preparation import prepare
from planner.tuning.tune_request import TuneRequest
from probes.node import probe

CASES = Path(__file__).parents[2] / "launch" / "late_cases.py"


@pytest.mark.parametrize("verbose", [False, True])
def test_strategies_that_cannot_run_are_one_line_and_their_reasons_are_said_on_request(
    verbose, servers
):
    request = TuneRequest(workload=Workload(use_case=f"{CASES}:Late"), verbose=verbose)
    node, notes = probe(quick=True), []
    prepare(
        request,
        node,
        TrialRunner(request.workload, node, servers),
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

"""Searches that store their trials and are killed at random moments."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path

from _block import Output, Result, show_faults
from _stored_trials import read_trials

from launch.workload import Workload
from planner.store import Store
from planner.store.study_store import StudyStore
from planner.trials.grid import read_grid
from planner.trials.replay import Replay
from planner.trials.reports import ignore
from planner.trials.result import TrialResult
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.study import AddedTrial, EarlierTrials, LaterTrials, Study
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest

_GRID = Path(__file__).with_name("grids") / "synthetic-8-cores.json"
_LATEST_S = 2.0
"""Latest moment of a kill."""


class _Acknowledging:
    """Studies of a store; each trial is said when it is stored."""

    def __init__(self, studies: StudyStore, pipe: int) -> None:
        self._studies = studies
        self._pipe = pipe

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        return self._studies.begin_search(study, fresh=fresh)

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        return self._studies.later_trials(study_id, after)

    def add_trial(self, study_id: int, result: TrialResult) -> AddedTrial:
        added = self._studies.add_trial(study_id, result)
        os.write(self._pipe, f"{added.id} ".encode())
        return added


def _search(url: str, pipe: int, seed: int, *, fresh: bool) -> None:
    """Search as `tune` does, on recorded times, and store everything."""
    grid = read_grid(_GRID)
    request = TuneRequest(
        workload=Workload(use_case="simplebig", seed=seed), budget_s=600, fresh=fresh
    )
    machine = Replay(grid, seed=seed)
    with Store.open(url) as store:
        trial_store = _Acknowledging(store.studies, pipe)
        findings = Findings(request, grid.case, grid.node, grid.software, trial_store)
        only = [result.parameters for result in grid.results if result.parameters]
        tuner = Tuner(findings, machine.start, ignore, clock=machine.clock, only=only)
        conclude(findings, store.plans, interrupted=tuner.search())


def kill_searches(count: int, out: Output) -> list[Result]:
    """Kill searches of one database, and look for lost, doubled and changed trials."""
    chance = random.Random(0)
    fork = multiprocessing.get_context("fork")
    faults: list[str] = []
    acknowledged = in_search = 0
    before: dict[int, tuple[object, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        path = Path(folder, "planner.db")
        for number in range(count):
            reading, writing = os.pipe()
            fresh = number % 5 == 0
            searcher = fork.Process(
                target=_search, args=(str(path), writing, number), kwargs={"fresh": fresh}
            )
            searcher.start()
            os.close(writing)
            time.sleep(chance.uniform(0, _LATEST_S))
            assert searcher.pid is not None
            os.kill(searcher.pid, signal.SIGKILL)
            searcher.join()
            with os.fdopen(reading) as pipe:
                told = [int(word) for word in pipe.read().split()]
            if searcher.exitcode not in (-signal.SIGKILL, 0):
                faults.append(f"kill {number}: exit code {searcher.exitcode}")
            in_search += searcher.exitcode == -signal.SIGKILL
            acknowledged += len(told)
            trials, said = read_trials(path)
            found = {trial["id"]: tuple(trial) for trial in trials}
            faults += [f"kill {number}: {one}" for one in said]
            faults += [
                f"kill {number}: trial {known} was there and is not as it was"
                for known, row in before.items()
                if found.get(known) != row
            ]
            new = sorted(found.keys() - before.keys())
            if told != new[: len(told)] or len(new) > len(told) + 1:
                faults.append(f"kill {number}: told of {told}, stored are {new}")
            before = found
        show_faults(faults, out)
        out.say(f"{in_search} of {count} killed before their end; {len(before)} trials stored")
    return [
        Result("kills in a search", in_search),
        Result("trials acknowledged", acknowledged),
        Result("trials lost, doubled or changed, databases not whole", len(faults), high=0),
    ]

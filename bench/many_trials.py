"""Time that commands take on a database of 10,000 trials: a first proposal, a list of plans.

A search reads the trials of its own study and those of machines and use cases that are alike, and
fits its model to them. The rest of what ``tune`` does at its start, such as loading torch, is the
same with an empty database, and is no part of it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
from _block import BenchError, Ddlplan, Result, begin, make_parser, run_bench
from _worlds import MACHINES, World

from launch.plan import Plan, Setting
from launch.strategies import strategy_names
from launch.workload import Workload
from planner.plans.stored_plan import StoredPlan, utc_now
from planner.search.plan_search import PlanSearch
from planner.search.space import PlanSpace
from planner.store import Store
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.findings import Findings
from planner.tuning.study import Study
from planner.tuning.tune_request import TuneRequest
from probes.timing import Interval, Measurement

_TURNS = 12
_TRIALS, _STUDIES, _PLANS = 10_000, 40, 500
_SOFTWARE = {"python": "3.11.7", "torch": "2.15.0", "ddlplan": "0.1.0"}
_LIMIT_S = 1.0


def main() -> int:
    """Measure and show."""
    arguments, out = begin(make_parser(__doc__, runs=(5, "of each")))
    with Ddlplan.in_own_folder() as ddlplan:
        world = World(MACHINES[0], 0)
        study = _fill(ddlplan.database, world)
        results = [
            Result(
                f"ddlplan plans list, {_PLANS} plans",
                _repeat(lambda: _list_plans(ddlplan), arguments.runs),
                "s",
                high=_LIMIT_S,
            )
        ]
        for name, fresh in (("with all of them", False), ("with none of them", True)):
            value = _repeat(lambda: _begin(ddlplan.database, world, study, fresh), arguments.runs)  # noqa: B023
            figure = f"from the start of a search to its first proposal, {name}"
            results.append(Result(figure, value, "s", high=None if fresh else _LIMIT_S))
    return out.conclude(results)


def _repeat(act: Callable[[], None], runs: int) -> Interval:
    times_s = []
    for _ in range(runs):
        began = time.perf_counter()
        act()
        times_s.append(time.perf_counter() - began)
    return Measurement(samples_s=tuple(times_s)).interval_s()


def _list_plans(ddlplan: Ddlplan) -> None:
    if not ddlplan.execute(ddlplan.command("plans", "list"))[0]:
        raise BenchError("plans list prints nothing")


def _begin(database: Path, world: World, study: Study, fresh: bool) -> None:
    """Do what a search does with earlier trials until it proposes its first plan."""
    request = TuneRequest(workload=Workload(use_case=study.use_case), fresh=fresh)
    with Store.open(str(database)) as store:
        findings = Findings(request, world.case, world.node, _SOFTWARE, store.studies)
        search = PlanSearch(
            strategy_names(),
            world.case,
            world.node,
            history=findings.history(),
            similar=findings.similar,
        )
        findings.candidates()
        if search.propose() is None:
            raise BenchError("the search proposed nothing")


def _fill(database: Path, world: World) -> Study:
    """Store studies of one machine and some use cases, each with as many trials and their plans."""
    space = PlanSpace(strategy_names(), world.case, world.node)
    draw = np.random.default_rng(0)
    each = _TRIALS // _STUDIES
    with Store.open(str(database)) as store:
        store.machines.save_probe(world.node)
        studies = [
            Study(
                use_case="imagined" if number == 0 else f"imagined{number % 4}",
                node=world.node.node,
                fingerprint=world.node.fingerprint(),
                precision="fp32",
                software=_SOFTWARE,
                data=world.case.digest if number == 0 else f"sha256:{number}",
                seed=0,
                facts=world.case,
            )
            for number in range(_STUDIES)
        ]
        ids = [store.studies.get_or_create(study) for study in studies]
        results: list[TrialResult] = []
        while len(results) < each:
            drawn = space.draw_randomly(draw)
            if drawn is not None:
                step_s = world.sample_s(drawn.plan) * drawn.plan.node_batch
                results.append(_result(drawn.plan, dict(drawn.parameters), step_s, draw))
        for result in results:
            store.studies.add_trial(ids[0], result)
        for number in range(_PLANS):
            store.plans.save(_stored(studies[number % _STUDIES], results[number % each]))
        store.plans.end_without_plan(ids[0])
    # One write for each trial, as a search does it, would take minutes here.
    with closing(sqlite3.connect(database)) as connection, connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(trials)")]
        kept = ", ".join(name for name in columns if name not in ("id", "study_id"))
        for study_id in ids[1:]:
            connection.execute(
                f"INSERT INTO trials (study_id, {kept}) SELECT ?, {kept} FROM trials"
                " WHERE study_id = ?",
                (study_id, ids[0]),
            )
    return studies[0]


def _result(
    plan: Plan, parameters: dict[str, Setting], step_s: float, draw: np.random.Generator
) -> TrialResult:
    turns = step_s * np.exp(0.03 * draw.normal(size=_TURNS))
    return TrialResult(
        plan=plan,
        role=Role.SEARCH,
        outcome=Outcome.OK,
        measurement=Measurement(
            warmup_s=(2 * step_s, step_s),
            samples_s=tuple(map(float, turns)),
            rounds=tuple(range(1, _TURNS + 1)),
        ),
        peak_memory_bytes=2**30,
        elapsed_s=5.0 + 2 * _TURNS * step_s,
        parameters=parameters,
    )


def _stored(study: Study, result: TrialResult) -> StoredPlan:
    rate = result.throughput_samples_per_s()
    assert rate is not None
    return StoredPlan(
        use_case=study.use_case,
        use_case_digest=study.data,
        node=study.node,
        fingerprint=study.fingerprint,
        plan=result.plan,
        throughput_samples_per_s=rate,
        speedup=replace(rate, median=2.0, low=1.9, high=2.1),
        baseline=None,
        peak_memory_bytes=2**30,
        created_at=utc_now(),
        software=_SOFTWARE,
    )


if __name__ == "__main__":
    run_bench(main)

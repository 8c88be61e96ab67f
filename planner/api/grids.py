"""Recorded grids: trials written to a file, and searches replayed on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from launch.case_facts import CaseFacts
from launch.plan import PRECISIONS, Setting
from planner.api.tuning import NodeTuneResult, TuneResult
from planner.errors import NoPlanError
from planner.plans.stored_plan import StoredPlan
from planner.quantities import format_count
from planner.search.space import PlanSpace
from planner.search.terms import stages_of
from planner.store import Store
from planner.trials.grid import Grid, check_target, read_grid, write_grid
from planner.trials.replay import Replay
from planner.trials.reports import Listener, ignore
from planner.trials.result import Role, TrialResult
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.study import AddedTrial, EarlierTrials, LaterTrials, Study
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from probes.node import probe

_BATCHES_PER_EPOCH = 100
"""Samples of the data set, told in largest batches, where trials do not say how many there are."""


def export(use_case: str, path: Path, node: str | None = None, *, db: str = "planner.db") -> Grid:
    """Write the trials of the study of a use case that was used last to a file.

    A file that this has written is replaced. What is not on record of studies of the first
    releases, such as the number of samples, is assumed.

    Example:
        >>> from pathlib import Path
        >>> from planner.api import grids
        >>> grids.export("simplebig", Path("grid.json"))  # doctest: +SKIP

    Args:
        use_case: As `make_workload` spells it.
        path: Of the file.
        node: On this node; this machine where left out.
        db: Database.

    Raises:
        NoPlanError: No trial has times, or no probe of the node as it was then is stored.
        GridFileError: The file cannot be written, or is there and none that this has written.
        StoreError: The database cannot be used.
    """
    check_target(path)
    name = node or probe(quick=True).node
    with Store.open(db, create=False) as store:
        found = store.studies.all_trials(use_case, name)
        timed = [trial.study_id for trial in found if trial.result.measurement]
        if not timed:
            raise NoPlanError(
                f"no trials of {use_case} on {name} have times: run ddlplan tune first"
            )
        # A search goes on with an old study where it has the same data: the newest is another.
        last = next(trial.study_id for trial in reversed(found) if trial.study_id in timed)
        study = store.catalog.study(last)
        hardware = store.machines.latest_probe(study.fingerprint, node=name)
    if hardware is None:
        raise NoPlanError(
            f"no probe of {name} with the hardware of study {study.id} is stored: run ddlplan "
            "probe there, or ddlplan tune where it has other hardware now"
        )
    results = tuple(trial.result for trial in found if trial.study_id == study.id)
    trials = format_count(timed.count(study.id), "trial")
    grid = Grid(
        about=f"{trials} of {use_case} on {name}, exported from a database",
        is_synthetic=False,
        use_case=use_case,
        case=_with_recorded_choices(study.facts or _assume(results), results),
        node=hardware,
        software=study.software,
        results=results,
    )
    write_grid(grid, path)
    return grid


def replay(
    path: Path, request: TuneRequest, *, seed: int = 0, listener: Listener = ignore
) -> TuneResult:
    """Search on recorded trials. Nothing is run, waited for or stored.

    Example:
        >>> from pathlib import Path
        >>> from planner.api import TuneRequest, Workload, grids
        >>> request = TuneRequest(workload=Workload(use_case="simplebig"), budget_s=180)
        >>> grids.replay(Path("grid.json"), request)  # doctest: +SKIP

    Args:
        path: The file.
        request: What to search, and for how long by the recorded times.
        seed: Of the places from which recorded steps are played.
        listener: Receives each trial.

    Raises:
        GridFileError: The file cannot be read.
        NoPlanError: No trial succeeded.
    """
    grid = read_grid(path)
    return replay_grid(grid, request, seed=seed, listener=listener)


def replay_grid(
    grid: Grid, request: TuneRequest, *, seed: int = 0, listener: Listener = ignore
) -> TuneResult:
    """Search on a grid that has been read; see `replay`."""
    machine, store = Replay(grid, seed=seed), _NoStore()
    findings = Findings(request, grid.case, grid.node, grid.software, store)
    tuner = Tuner(
        findings,
        machine.start,
        listener,
        clock=machine.clock,
        only=_find_choosable(grid),
    )
    outcome = conclude(findings, store, interrupted=tuner.search())
    found = NodeTuneResult(host=grid.node.node, outcome=outcome)
    return TuneResult(nodes=(found,), elapsed_s=machine.now_s, interrupted=outcome.interrupted)


class _NoStore:
    """Keeps nothing: replayed trials are on disk already."""

    def __init__(self) -> None:
        self._trials = 0

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        """Begin with nothing."""
        return EarlierTrials(study_id=0)

    def add_trial(self, study_id: int, result: TrialResult) -> AddedTrial:
        """Count a trial."""
        number, self._trials = self._trials, self._trials + 1
        return AddedTrial(id=number, number=number)

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        """Give none."""
        return LaterTrials(newest=after)

    def save(self, stored: StoredPlan, *, ends_search: bool = False) -> int:
        """Leave a plan."""
        return 0

    def end_without_plan(self, study_id: int) -> None:
        """Do nothing."""


def _find_choosable(grid: Grid) -> list[Mapping[str, Setting]]:
    """Give what is drawn for the recorded plans that may be chosen.

    Shares and looks have a batch that nobody wants. The finals of looks were not drawn: what draws
    them is found here.
    """
    recorded = [result for result in grid.results if result.role.is_for_choice]
    space = PlanSpace(
        sorted({result.plan.strategy for result in recorded}),
        _with_recorded_choices(grid.case, recorded),
        grid.node,
    )
    drawn = [result.parameters for result in recorded if result.parameters]
    known = {result.plan for result in recorded if result.parameters}
    found = [space.find_plan(r.plan, {}) for r in recorded if r.plan not in known]
    return drawn + [one.parameters for one in found if one is not None]


def _assume(results: Sequence[TrialResult]) -> CaseFacts:
    """Assume of a use case what its trials suggest."""
    plans = [result.plan for result in results]
    own = [r.plan.node_batch for r in results if r.role is Role.DEFAULTS]
    own = own or [r.plan.node_batch for r in results if r.role is Role.BASELINE]
    return CaseFacts(
        default_batch=own[-1] if own else min(plan.node_batch for plan in plans),
        train_samples=_BATCHES_PER_EPOCH * max(plan.node_batch for plan in plans),
        validation_samples=0,
        parameter_count=0,
        parameter_bytes=0,
        max_stages=max(map(stages_of, plans)),
        digest="recorded",
        pixel_bytes=1 if any(plan.input != "files" for plan in plans) else None,
        has_fused_optimizer=any(plan.fused_optimizer for plan in plans),
        allocators=tuple(sorted({plan.allocator for plan in plans})),
        can_compile=any(plan.compile for plan in plans),
    )


def _with_recorded_choices(case: CaseFacts, results: Sequence[TrialResult]) -> CaseFacts:
    """Put what there is to choose from among recorded plans; leave out where the data were."""
    plans = [result.plan for result in results]
    on_cpu = [plan for plan in plans if "cpu" in plan.devices]
    on_gpus = [plan for plan in plans if "cpu" not in plan.devices]
    batches = tuple(sorted({plan.node_batch for plan in on_cpu}))
    return replace(
        case,
        data=None,
        batch_choices=batches or (case.default_batch,),
        gpu_batch_choices=tuple(sorted({plan.node_batch for plan in on_gpus})),
        precisions=_in_order(PRECISIONS, (plan.precision for plan in on_cpu)) or ("fp32",),
        gpu_precisions=_in_order(PRECISIONS, (plan.precision for plan in on_gpus)) or ("fp32",),
        inputs=_in_order(("files", "cache"), (plan.input for plan in plans)) or ("files",),
        most_loaders=max([case.most_loaders, *(plan.loader_workers for plan in on_cpu)]),
    )


def _in_order(known: Sequence[str], found: Iterable[str]) -> tuple[str, ...]:
    names = set(found)
    return tuple(name for name in known if name in names)

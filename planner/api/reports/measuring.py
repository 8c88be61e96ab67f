"""Measuring of what papers' tables lack, each part of it in a share of the time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import InfeasiblePlanError, InvalidPlanError, LaunchError
from launch.reports import Noted, Report, StepDone
from launch.use_cases import make_workload
from launch.use_cases._settings import split_name
from launch.workload import Workload
from planner.api.reports.making import load_papers
from planner.api.use_cases import check_use_case
from planner.cancellation import Cancellation
from planner.errors import CancelledError, NoPlanError, PlannerError, StoreError
from planner.jobs.hosts import Hosts
from planner.paper_tables._base import Paper
from planner.paper_tables._collecting import collect
from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._wanted import (
    Wanted,
    WantedPlan,
    WantedSweep,
    WantedTraining,
    WantedTrial,
)
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, utc_now
from planner.quantities import format_duration
from planner.store import check_location
from planner.trials.reports import Listener, ignore
from probes.node import probe_for_plans

_LEAST_S = 30.0
"""Less time is no measurement: PyTorch alone takes a third of it to load."""

_FIRST_S = 180.0
"""Of the first search of a use case, before the time of its steps is known."""

_STARTING_S = 20.0
"""Of a search or a training, before its first step."""

_USE_S, _USE_STEPS = 40.0, 4
"""Of a training whose use over time is wanted: from its first step on."""

_OVERTIME, _OVERTIME_S = 1.3, 60.0
"""What is not over by so much after its time is ended."""

_PASSES = 2
"""What a first one has not brought, as steps took longer than was known, is tried once more with
the time that is left."""

CancellationMaker = Callable[[], AbstractContextManager[Cancellation]]
"""Makes the cancellation of each search and each training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """What may be measured for a report."""

    budget_s: float = 1800.0
    papers: tuple[str, ...] | None = None
    """Names; ``None``: all."""

    data: Mapping[str, Path] = field(default_factory=dict)
    """Folders, by use case: only what is stored of them counts as measured. The others go on with
    the data of the study that is shown, or make their own."""

    hosts: Hosts = field(default_factory=lambda: Hosts.this_machine())
    """This machine, with what may be done on it."""

    waits: bool = True
    """Whether to wait while something else is timed here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What measuring for a report came to."""

    done: tuple[str, ...] = ()
    """Keys of what was measured."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why something was not, by its key."""


def measure(
    request: MeasureRequest,
    *,
    db: str = "planner.db",
    listener: Listener = ignore,
    make_cancellation: CancellationMaker = lambda: nullcontext(Cancellation()),
) -> Measured:
    """Measure on this machine what the papers' tables lack, as far as the time goes.

    What is stored is not measured again: the same call goes on where the last one ended. Plans are
    searched for each strategy and trained with for a while; the best of all is the only one stored.

    Example:
        >>> from planner.api import reports
        >>> reports.measure(reports.MeasureRequest(budget_s=600)).done  # doctest: +SKIP
        ('trial simplebig processes', ...)

    Args:
        request: What, and for how long.
        db: Database.
        listener: Receives what is done, and the reports of searches and trainings.
        make_cancellation: Makes the cancellation of each search and each training.

    Raises:
        UsageError: There is no paper of a name, or no mpirun.
        UseCaseError: Data cannot be read; nothing was measured.
        RefusedError: This is root, and the user has not allowed that.
        StoreError: The database cannot be used.
        CancelledError: It was cancelled; what was measured by then stays.
    """
    request.hosts.access.require_mpirun()
    request.hosts.access.check_root()
    check_location(db)
    papers = load_papers(request.papers)
    for case, folder in request.data.items():
        # First: after half an hour it would be one row without a figure.
        with make_cancellation() as cancellation:
            workload = make_workload(case, data=folder)
            check_use_case(workload, listener=listener, cancellation=cancellation)
    return _Measuring(request, papers, db, listener, make_cancellation).run()


class _Measuring:
    """One run of measurements, each in a part of the time that is left."""

    def __init__(
        self,
        request: MeasureRequest,
        papers: Sequence[Paper],
        db: str,
        listener: Listener,
        make_cancellation: CancellationMaker,
    ) -> None:
        self._request = request
        self._papers = papers
        self._db = db
        self._listener = listener
        self._make_cancellation = make_cancellation
        self._deadline = time.monotonic() + request.budget_s
        self._node = probe_for_plans()
        self._held = StoredEvidence()
        self._begun: dict[str, None] = {}
        self._passed = set[str]()
        self._impossible = set[str]()
        self._reasons: dict[str, str] = {}

    def run(self) -> Measured:
        for _ in range(_PASSES):
            self._passed = set(self._impossible)
            self._measure_open()
        done = tuple(key for key in self._begun if key not in self._reasons)
        return Measured(done=done, reasons=self._reasons)

    def _measure_open(self) -> None:
        while open_ones := self._open():
            wanted = next((one for one in open_ones if _can_begin(one)), None)
            if wanted is None:
                break  # trainings whose plans could not be tried
            left_s = self._deadline - time.monotonic()
            share_s = left_s * wanted.weight / sum(_weights(open_ones))
            # Rather fewer figures that say something than many that do not.
            share_s = min(left_s, max(share_s, _least_s(wanted)))
            self._begun[wanted.key] = None
            self._passed.add(wanted.key)
            # A budget that is too short for any of them goes to the first one.
            if share_s < min(_least_s(wanted), _LEAST_S + 0.5 * self._request.budget_s):
                budget = format_duration(self._request.budget_s)
                self._reasons.setdefault(
                    wanted.key, f"no time was left of --budget {budget}: the same command goes on"
                )
                continue
            self._listener(Noted(message=f"{wanted.what}, {format_duration(share_s)}"))
            self._reasons.pop(wanted.key, None)
            try:
                self._measure(wanted, share_s)
            except (StoreError, CancelledError):
                raise
            except (PlannerError, LaunchError) as error:
                if isinstance(error, LaunchError):
                    self._impossible.add(wanted.key)  # no time would help
                self._reasons[wanted.key] = " ".join(str(error).split())
                self._listener(Noted(message=f"missing: {self._reasons[wanted.key]}"))

    def _open(self) -> list[Wanted]:
        """Give what is wanted and had no turn in this pass."""
        held = self._held = collect(self._papers, self._db, {}, self._request.data)
        return [
            one
            for paper in self._papers
            for one in paper.wanted(held, self._node)
            if one.key not in self._passed
        ]

    def _measure(self, wanted: Wanted, share_s: float) -> None:
        match wanted:
            case WantedTrial(use_case=case, strategy=strategy):
                self._tune(case, share_s, wanted.key, strategies=(strategy,))
            case WantedPlan(use_case=case):
                self._tune(case, share_s, wanted.key, strategies=None)
            case WantedTraining():
                self._train(wanted, share_s)
            case WantedSweep():
                self._sweep(wanted, share_s)

    def _workload(self, case: str) -> Workload:
        name, _ = split_name(case)  # folders are named without a use case's settings
        data = self._request.data.get(name)
        study = self._held.study_of(case, self._node.fingerprint())
        if data is None and study is not None and study.data is not None:
            # Else it would be measured into another study than the one that is shown.
            data = known if (known := Path(study.data)).exists() else None
        return make_workload(case, data=data)

    def _tune(
        self, case: str, share_s: float, key: str, *, strategies: tuple[str, ...] | None
    ) -> None:
        """Search plans of some strategies; of all where the best one is to be chosen and stored."""
        from planner.api.tuning import tune  # not to read what is stored
        from planner.tuning.tune_request import TuneRequest

        request = TuneRequest(
            workload=self._workload(case),
            budget_s=max(_LEAST_S, share_s - _STARTING_S),
            strategies=strategies,
            trials=0 if strategies is None else None,
            # The best of one strategy would be what a launch takes from now on.
            keeps_plan=strategies is None,
            with_baseline=strategies is None,  # all speedups of the papers are over it
        )
        with self._limited(_OVERTIME * share_s + _OVERTIME_S, key) as cancellation:
            try:
                result = tune(
                    request,
                    db=self._db,
                    hosts=self._request.hosts,
                    listener=self._listener,
                    cancellation=cancellation,
                    waits=self._request.waits,
                )
            except InfeasiblePlanError:
                raise
            except InvalidPlanError as error:  # what it says of --budget is of this part of it
                raise NoPlanError(
                    f"{format_duration(request.budget_s)} of --budget held no comparison of plans, "
                    "as steps take long here: the same command goes on"
                ) from error
            if result.interrupted:
                if key in self._reasons:
                    raise cancellation.make_error()
                raise KeyboardInterrupt

    def _sweep(self, wanted: WantedSweep, share_s: float) -> None:
        """Sweep over batches; a sweep that is ended goes on from its points the next time."""
        from planner.api.sweeps import sweep
        from planner.sweeps.sweep_request import SweepRequest

        request = SweepRequest(
            workload=self._workload(wanted.use_case),
            batches=wanted.batches,
            devices=wanted.devices,
            epochs=wanted.epochs,
        )
        with self._limited(max(share_s, _LEAST_S), wanted.key) as cancellation:
            sweep(
                request,
                db=self._db,
                listener=self._listener,
                cancellation=cancellation,
                waits=self._request.waits,
            )

    def _train(self, wanted: WantedTraining, share_s: float) -> None:
        """Train with the plan of a trial until its use of the machine shows."""
        trial = wanted.trial
        assert trial is not None  # it could begin
        rate = trial.throughput_samples_per_s()
        assert rate is not None  # it was measured
        step_s = trial.plan.node_batch / rate.median
        most_s = min(max(_USE_S, _USE_STEPS * step_s), max(share_s - _STARTING_S, _LEAST_S))
        plan = StoredPlan(
            use_case=self._workload(wanted.use_case).use_case,
            node=self._node.node,
            fingerprint=self._node.fingerprint(),
            plan=trial.plan,
            throughput_samples_per_s=rate,
            speedup=None,
            baseline=None,
            peak_memory_bytes=trial.peak_memory_bytes,
            created_at=utc_now(),
            software=current_software(),
        )
        self._launch(wanted, plan, most_s, share_s)

    def _launch(
        self, wanted: WantedTraining, plan: StoredPlan, most_s: float, share_s: float
    ) -> None:
        from planner.api.launching import launch
        from planner.jobs.launch_request import LaunchRequest
        from planner.trainings.recorder import TrainingRecorded

        began: float | None = None
        is_recorded = is_long_enough = False
        # A plan that is stored would be chosen by launches if this were killed before its end.
        request = LaunchRequest(
            workload=self._workload(wanted.use_case), epochs=wanted.epochs, plan=plan
        )
        with self._limited(_OVERTIME * share_s + _OVERTIME_S, wanted.key) as cancellation:

            def on_report(report: Report, host: str | None = None, /) -> None:
                nonlocal began, is_recorded, is_long_enough
                self._listener(report, host)
                match report:
                    case TrainingRecorded():
                        is_recorded = True
                    case StepDone():
                        now = time.monotonic()
                        began = now if began is None else began
                        is_over = now - began >= most_s
                        if is_over and is_recorded and not is_long_enough:
                            is_long_enough = True
                            cancellation.cancel()
                            cancellation.cancel()  # at once: nobody wants these weights

            try:
                launch(
                    request,
                    db=self._db,
                    hosts=self._request.hosts,
                    listener=on_report,
                    cancellation=cancellation,
                )
            except CancelledError:
                if not is_long_enough:
                    raise

    @contextmanager
    def _limited(self, limit_s: float, key: str) -> Iterator[Cancellation]:
        """Give a cancellation that is used when a time is up, which is then the reason.

        It is none where the block comes to its end all the same.
        """
        is_over = False
        with self._make_cancellation() as cancellation:

            def end() -> None:
                self._reasons[key] = (
                    f"not over after {format_duration(limit_s)}, as the machine is slow or in use: "
                    "the same command tries it again"
                )
                cancellation.cancel()
                cancellation.cancel()

            timer = threading.Timer(limit_s, end)
            timer.start()
            try:
                yield cancellation
                is_over = True
            except CancelledError:
                if key not in self._reasons:
                    raise
            finally:
                timer.cancel()
                timer.join()
                if is_over:
                    self._reasons.pop(key, None)


def _least_s(wanted: Wanted) -> float:
    """Give the time below which a measurement is not begun."""
    if isinstance(wanted, WantedTraining):
        return _STARTING_S + _USE_S
    if isinstance(wanted, WantedSweep) or wanted.least_s is None:
        return _FIRST_S
    return _STARTING_S + max(_LEAST_S, wanted.least_s)


def _weights(open_ones: Sequence[Wanted]) -> Iterator[float]:
    """Give the weights of what can still be measured."""
    trials = {one.key for one in open_ones if isinstance(one, WantedTrial)}
    for one in open_ones:
        match one:
            case WantedTraining(trial=None, after=after) if after not in trials:
                continue
        yield one.weight


def _can_begin(wanted: Wanted) -> bool:
    return not isinstance(wanted, WantedTraining) or wanted.trial is not None

"""Sweeps: the same training with many batches on several device settings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launch.errors import InvalidPlanError
from launch.reports import Noted, Warned, Working
from launch.workers.fork_server_pool import ForkServerPool
from planner.api.use_cases import find_known_place
from planner.cancellation import Cancellation
from planner.jobs.hosts import Hosts
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.making import find_plan, renumber_gpus
from planner.jobs.suggested_command import suggest_command
from planner.plans.missing_plans import needing_plans
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, utc_now
from planner.store import Store, check_location, find_hazard
from planner.sweeps.device_settings import make_device_settings
from planner.sweeps.reports import SweepOpened
from planner.sweeps.sweep_record import StoredSweep, SweepRecord, SweepSetting
from planner.sweeps.sweep_request import SweepRequest
from planner.sweeps.sweeper import Sweeper, with_batch
from planner.trials.machine_alone import machine_alone
from planner.trials.reports import Listener, ignore
from planner.trials.runner import TrialRunner
from probes.hardware import Hardware
from probes.node import probe_for_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult:
    """A finished sweep; it is in the database too."""

    sweep: StoredSweep
    new_points: int
    """That this call trained."""

    elapsed_s: float


def sweep(
    request: SweepRequest,
    *,
    db: str = "planner.db",
    listener: Listener = ignore,
    cancellation: Cancellation | None = None,
    waits: bool = True,
) -> SweepResult:
    """Train every batch on every device setting of this machine.

    Every point is the training that a launch runs, from the same seed. The settings of a batch take
    turns of about half a second, so that what slows the machine slows all of them. Their points are
    stored when all of them have ended, one that fails at once. A sweep that was ended goes on with
    the points that are missing.

    Example:
        >>> from planner.api import SweepRequest, make_workload, sweeps
        >>> request = SweepRequest(workload=make_workload("simplebig"), batches=(32, 64))
        >>> sweeps.sweep(request).sweep.points[0].last_epoch  # doctest: +SKIP
        EpochDone(...)

    Args:
        request: What to train, and how.
        db: Database: a path, or ``postgresql+psycopg://user@host/name``.
        listener: Receives progress, warnings, and each point.
        cancellation: Ends the sweep, from any thread.
        waits: Whether to wait while something else is timed on this machine, or a training runs.

    Raises:
        MachineBusyError: That is so, and ``waits`` is false.
        UseCaseError: The use case or its data are at fault.
        InvalidPlanError: A batch does not fit the data or a setting, or a setting this machine.
        NoPlanError: A plan is asked for that is not stored.
        StalePlanError: It was made on other hardware or software.
        StoreError: The database cannot be used.
        ConflictError: Another process trains the same sweep, and was faster.
        CancelledError: The end was asked for; what is stored stays.
    """
    cancellation = cancellation or Cancellation()
    check_location(db)  # before anything is trained that could not be stored
    if (note := find_hazard(db)) is not None:
        listener(Warned(message=note))
    with machine_alone(listener, cancellation, waits=waits):
        return _sweep_here(request, db, listener, cancellation)


def find(
    use_case: str | None = None,
    *,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> list[SweepRecord]:
    """Give sweeps without their points, the newest first.

    Example:
        >>> from planner.api import sweeps
        >>> sweeps.find(most=1)[0].is_finished  # doctest: +SKIP
        True

    Args:
        use_case: Only of this one, as it was spelled.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.sweeps.find(use_case, before=before, most=most)


def get(sweep_id: int, *, db: str = "planner.db") -> StoredSweep:
    """Give one sweep with its points.

    Example:
        >>> from planner.api import sweeps
        >>> sweeps.get(1).points[0].batch  # doctest: +SKIP
        32

    Raises:
        NoSweepError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return _get(store, sweep_id)


def _get(store: Store, sweep_id: int) -> StoredSweep:
    """Give a sweep with the hardware of its machine."""
    found = store.sweeps.get(sweep_id)
    record = found.record
    hardware = store.machines.latest_probe(record.fingerprint, node=record.node)
    return replace(found, hardware=hardware)


def _sweep_here(
    request: SweepRequest, db: str, listener: Listener, cancellation: Cancellation
) -> SweepResult:
    started = time.monotonic()
    node = probe_for_plans()
    settings = _make_settings(request, node, db, listener, cancellation)
    for setting in settings:
        setting.plan.check_fits(node.cpu.usable_cores)
        for batch in request.batches:
            _check_batch(setting, batch)
    with ForkServerPool() as servers:
        runner = TrialRunner(request.workload, node, servers, cancellation)
        listener(Working(what="loading PyTorch and the use case"))
        facts = runner.describe(listener)
        if (largest := max(request.batches)) > facts.train_samples:
            raise InvalidPlanError(
                f"--batches has {largest} and train_samples={facts.train_samples}: "
                f"use at most {facts.train_samples}"
            )
        record = SweepRecord(
            created_at=utc_now(),
            use_case=request.workload.use_case,
            data=request.workload.data,
            seed=request.workload.seed,
            epochs=request.epochs,
            batches=request.batches,
            settings=tuple(settings),
            node=node.node,
            fingerprint=node.fingerprint(),
            software=current_software(),
            use_case_digest=facts.digest,
            is_generated=facts.is_generated,
            train_samples=facts.train_samples,
            test_samples=facts.validation_samples,
        )
        # Only now: a use case or a folder that is no good leaves no database behind.
        with Store.open(db) as store:
            if store.machines.latest_probe(record.fingerprint, node=record.node) is None:
                store.machines.save_probe(node)
            begun = store.sweeps.begin(record, fresh=request.fresh)
            sweep_id = begun.record.id
            assert sweep_id is not None  # the store has given it
            done = len(begun.points)
            listener(SweepOpened(record=begun.record, points=tuple(begun.points)))
            Sweeper(
                begun,
                node,
                runner,
                lambda points: store.sweeps.add_points(sweep_id, *points),
                listener,
                cancellation,
                utc_now,
            ).run()
            found = _get(store, sweep_id)
    return SweepResult(
        sweep=found,
        new_points=len(found.points) - done,
        elapsed_s=time.monotonic() - started,
    )


def _make_settings(
    request: SweepRequest,
    node: Hardware,
    db: str,
    listener: Listener,
    cancellation: Cancellation,
) -> list[SweepSetting]:
    settings: list[SweepSetting] = []
    if request.devices or not request.plans:
        least = min(request.batches)
        settings += make_device_settings(request.devices, node, least_batch=least)
        if not request.devices and len(settings) < len(make_device_settings((), node)):
            line = f"at most {settings[-1].label}: more of them than batch {least} has samples"
            listener(Noted(message=f"{line} are left out"))
    if request.plans:
        settings += [
            SweepSetting(label=f"plan {one.id}", plan=one.plan, plan_id=one.id)
            for one in _find_plans(request, node, db, listener, cancellation)
        ]
    return settings


def _find_plans(
    request: SweepRequest,
    node: Hardware,
    db: str,
    listener: Listener,
    cancellation: Cancellation,
) -> list[StoredPlan]:
    remedy = suggest_command("tune", request.workload, db=db, hosts=Hosts.this_machine())
    named = request.plans
    numbers: Sequence[int | None] = [None] if isinstance(named, str) else named
    found = []
    with (
        needing_plans(request.workload.use_case, db, remedy),
        Store.open(db, create=False) as store,
    ):
        known_as = find_known_place(store, request.workload, listener, cancellation)
        for number in numbers:
            asked = LaunchRequest(
                workload=request.workload,
                plan_id=number,
                allow_stale=request.allow_stale,
            )
            plan = find_plan(
                store, asked, node, current_software(), remedy=remedy, known_as=known_as
            )
            found.append(replace(plan.stored, plan=renumber_gpus(plan).plan))
    return found


def _check_batch(setting: SweepSetting, batch: int) -> None:
    try:
        with_batch(setting, batch)
    except InvalidPlanError as error:
        raise InvalidPlanError(f"--batches has {batch} and {setting.label}: {error}") from error

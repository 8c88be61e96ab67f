"""Trainings that were started, with their epochs and the use of their hosts."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from launch.system.log_part import MOST_LOG_BYTES, LogPart
from planner.jobs.exporting import export_onnx as export_onnx
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.records.usage_record import HostUsage
from planner.store import Store
from planner.supervision.states import true_trainings
from planner.trainings import logs
from planner.trainings.logs import TrainingLog


def find(
    use_case: str | None = None,
    *,
    states: Collection[TrainingStatus] | None = None,
    before: int | None = None,
    most: int | None = None,
    db: str = "planner.db",
) -> list[TrainingRecord]:
    """Give trainings, the newest first, each in its true state.

    Example:
        >>> from planner.api import trainings
        >>> trainings.find("simplebig", most=1)[0].state  # doctest: +SKIP
        <TrainingStatus.DONE: 'done'>

    Args:
        use_case: Only of this one, as it was spelled.
        states: Only in one of these states.
        before: With a lower number.
        most: At most so many.
        db: Database.

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        if states is None:
            found = store.trainings.find(use_case=use_case, before=before, most=most)
            return list(true_trainings(store, found))
        # Some that are stored as running may be over, and not all of these can be set right.
        running = store.trainings.find(
            use_case=use_case, states=[TrainingStatus.RUNNING], before=before
        )
        judged = [one for one in true_trainings(store, running) if one.state in states]
        over = [state for state in states if state is not TrainingStatus.RUNNING]
        stored = store.trainings.find(use_case=use_case, states=over, before=before, most=most)
        by_number = {one.id: one for one in (*judged, *stored)}
        return sorted(by_number.values(), key=lambda one: one.id or 0, reverse=True)[:most]


def get(training_id: int, *, db: str = "planner.db") -> TrainingRecord:
    """Give one training in its true state.

    Example:
        >>> from planner.api import trainings
        >>> trainings.get(1).epochs_done[-1].train_loss  # doctest: +SKIP
        0.71

    Raises:
        NoTrainingError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return next(true_trainings(store, [store.trainings.get(training_id)]))


def get_usage(training_id: int, *, db: str = "planner.db") -> Mapping[str, HostUsage]:
    """Give what each host of a training used over time, the hosts in the order of their ranks.

    Example:
        >>> from planner.api import trainings
        >>> used = trainings.get_usage(1)["node1"]  # doctest: +SKIP
        >>> list(zip(used.time_s, used.busy_cores.mean))[:2]  # doctest: +SKIP
        [(1.5, 0.98), (2.5, 1.96)]

    Raises:
        NoTrainingError: None has this number.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        record = store.trainings.get(training_id)
        found = store.trainings.usage(training_id)
    return {each.host: found[each.host] for each in record.hosts if each.host in found}


def list_logs(training_id: int, *, db: str = "planner.db") -> list[TrainingLog]:
    """List the logs that a training has left on this machine, mpirun's first.

    Example:
        >>> from planner.api import trainings
        >>> [log.name for log in trainings.list_logs(1)]  # doctest: +SKIP
        ['mpirun.log', 'node1-worker0.log']

    Raises:
        NoTrainingError: None has this number.
        UsageError: Another machine started it.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        record = store.trainings.get(training_id)
    return logs.list_logs(record)


def read_log(
    training_id: int,
    name: str,
    *,
    offset: int = 0,
    most_bytes: int = MOST_LOG_BYTES,
    db: str = "planner.db",
) -> LogPart:
    """Read a part of a log of a training.

    Example:
        >>> from planner.api import trainings
        >>> trainings.read_log(1, "node1-worker0.log", offset=-80).text  # doctest: +SKIP
        'downloading the tokens'

    Args:
        training_id: Its number.
        name: One of those that `list_logs` gives; no other file is read.
        offset: First byte; below 0 it counts from the end.
        most_bytes: At most so many, and never more than `MOST_LOG_BYTES`.
        db: Database.

    Raises:
        NoTrainingError: None has this number.
        UsageError: It has no such log, or another machine started it.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        record = store.trainings.get(training_id)
    return logs.read_log(record, name, offset, most_bytes)

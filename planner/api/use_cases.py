"""Use cases: whether they meet the contract, and where their plans were found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from launch.case_facts import CaseFacts
from launch.errors import LaunchError
from launch.reports import Noted, Report, Warned
from launch.strategies import strategy_names
from launch.system.durable_files import explain_absence
from launch.use_cases import resolve
from launch.workers.fork_server_pool import ForkServerPool
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.errors import UsageError
from planner.jobs.suggested_command import database_options
from planner.scripts.naming import command_for, is_script
from planner.search.space import find_obstacles
from planner.store import Store
from planner.trials.reports import Listener, ignore
from planner.trials.runner import TrialRunner
from probes.node import probe, probe_for_plans


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedUseCase:
    """What was found when a use case was tried on a batch."""

    facts: CaseFacts
    obstacles: Mapping[str, str | None]
    """By strategy, why it cannot run the use case on this machine; ``None`` where it can."""

    warnings: tuple[str, ...]
    """What may be wrong with it, and does not keep it from being trained."""


def check_use_case(
    workload: Workload, *, listener: Listener = ignore, cancellation: Cancellation | None = None
) -> CheckedUseCase:
    """Load a use case and its data in a process of its own, and try a batch.

    Example:
        >>> from planner.api import make_workload
        >>> from planner.api.use_cases import check_use_case
        >>> check_use_case(make_workload("case.py:Case")).facts.has_weights  # doctest: +SKIP
        False

    Args:
        workload: The use case, with its data.
        listener: Receives progress.
        cancellation: Ends it, from any thread.

    Raises:
        UseCaseError: It does not meet the contract, its data cannot be read, or its loss does
            not add up.
        LaunchError: The process that tried it was ended from outside.
        CancelledError: It was cancelled.
    """
    warnings: list[str] = []

    def listen(report: Report, host: str | None = None, /) -> None:
        if isinstance(report, Warned):
            warnings.append(report.message)
        else:
            listener(report, host)

    node = probe_for_plans()
    with ForkServerPool() as servers:
        facts = TrialRunner(workload, node, servers, cancellation).describe(listen)
    names = strategy_names()
    obstacles = find_obstacles(names, facts, node)
    return CheckedUseCase(
        facts=facts,
        obstacles={name: obstacles.get(name) for name in names},
        warnings=(*warnings, *facts.warnings),
    )


def find_case_of_plan(
    plan_id: int, *, data: Path | None = None, db: str = "planner.db"
) -> tuple[str, Path | None]:
    """Give the use case and the data that a stored plan was found with.

    As `launch.use_cases.make_workload` takes them: no data where the use case finds them by itself.

    Args:
        plan_id: Number of the plan.
        data: What the user names in place of those.
        db: Database.

    Raises:
        NoPlanError: There is no plan with this number.
        UsageError: It is of a script, the file of its use case is not there any more, or it was
            imported, which leaves its data behind.
    """
    with Store.open(db, create=False) as store:
        stored = store.plans.get(plan_id)
        facts = None if stored.study_id is None else store.studies.case_facts(stored.study_id)
    use_case = stored.use_case
    if is_script(use_case):
        line = command_for(use_case, "launch", "--plan", str(plan_id), *database_options(db))
        raise UsageError(f"plan {plan_id} is of a script, which is run by {line}")
    file = resolve(use_case).source_file
    if file is not None and (why := explain_absence(file)) is not None:
        raise UsageError(
            f"plan {plan_id} is for {use_case}, and {file}: {why}: say with --use-case where it "
            "lies now"
        )
    if data is None and facts is not None and facts.data is not None:
        data = Path(facts.data)
    if data is None and stored.lacks_data:
        raise UsageError(
            f"plan {plan_id} was found with data, and where they are is not imported with it: "
            "name them with --data"
        )
    return use_case, data


def find_known_place(
    store: Store, workload: Workload, listener: Listener, cancellation: Cancellation
) -> str:
    """Give the place under which the database knows a use case.

    That is its own, unless there are no plans of it, and an object of its name somewhere else
    has some: then the use case is read, in a process of its own, to see whether it is the same, and
    the listener receives a line that says so.
    """
    own = workload.use_case
    namesakes = store.plans.find_namesakes(own)
    if not namesakes or store.plans.find(own):
        return own
    listener(Noted(message=f"reading {own}: its plans may have been found in another folder"))
    with ForkServerPool() as servers:
        runner = TrialRunner(workload, probe(quick=True), servers, cancellation)
        try:
            return namesakes.get(runner.describe().digest, own)
        except LaunchError:  # said by the command that finds a plan, which comes next
            return own

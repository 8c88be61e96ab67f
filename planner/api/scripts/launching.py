"""Launch of a script as it is with its stored plan: in the user's folder, nothing around it."""

from __future__ import annotations

import os
import platform
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.errors import InvalidPlanError, ScriptError
from launch.reports import Warned
from launch.scripts.environment import NO_PYTHON, ScriptStart, make_start, placeholder_values
from launch.scripts.program import Program
from launch.scripts.script_process import find_script_cause
from launch.scripts.step_counter import CountedSteps, StepCounter
from launch.system.machine_lock import Occupant, training_noticed
from launch.system.process_end import explain_exit
from launch.workload import Workload
from planner.api.scripts.recording import begin_row, end_row, heartbeat, rate_of
from planner.errors import CancelledError, StalePlanError, TrainingFailedError, UsageError
from planner.jobs.hosts import Hosts
from planner.jobs.suggested_command import suggest_command
from planner.plans.missing_plans import make_missing_plan_error, needing_plans
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, stale_reasons
from planner.records.training_record import TrainingHost, TrainingStatus
from planner.scripts.foreground import run_in_foreground
from planner.scripts.naming import (
    STEP_REGEX,
    STRATEGY,
    WHOLE_RUNS,
    code_digest,
    code_files,
    code_of,
    command_line,
    describe_trained,
    is_script,
    measuring_options,
    script_arguments,
    script_name,
)
from planner.scripts.plan_check import check_script_plan
from planner.store import Store
from planner.trials.reports import Listener, ignore
from probes.hardware import Hardware
from probes.node import probe

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals by which somebody ends a script. By any other it has crashed, or was killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedScript:
    """A script that can start."""

    stored: StoredPlan
    program: Program
    node: Hardware
    start: ScriptStart
    """As it is shown: nobody watches it."""

    reasons: tuple[str, ...] = ()
    """Why the plan is stale; used all the same."""

    changed: tuple[str, ...] = ()
    """Files of the command, where the plan was measured with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptRun:
    """A script that came to its end."""

    prepared: PreparedScript
    elapsed_s: float
    training_id: int | None
    """Of its row in the database; ``None`` where that could not be written."""

    counted: CountedSteps | None
    """``None`` where its steps cannot be told."""

    @property
    def batch(self) -> int:
        """Samples of a step of all processes: as these have read them, else by the plan.

        Where a number stands in the place of ``{batch}``, what the plan has for it is not used.
        """
        if self.counted is None or self.counted.samples is None:
            return self.prepared.stored.plan.node_batch
        return self.counted.samples * self.counted.ranks

    @property
    def samples_per_s(self) -> float | None:
        """Rate of its steps."""
        return None if self.counted is None else rate_of(self.counted, self.batch)


def prepare_script(
    command: Sequence[str],
    *,
    db: str = "planner.db",
    plan_id: int | None = None,
    allow_stale: bool = False,
) -> PreparedScript:
    """Find the plan of a command, which is as it was tuned, with its placeholders; make its start.

    The plan that is named may be that of another command with the same placeholders.

    Raises:
        NoPlanError: None is stored; the message names the command that finds one.
        StalePlanError: It was made on other hardware or software.
        InvalidPlanError: It is no plan of a script, or this node lacks what it asks for.
        UsageError: It has no value for a placeholder.
        ScriptError: The command names something that is not there.
    """
    name, node, software = script_name(command), probe(quick=True), current_software()
    program, shown = Program(arguments=tuple(command)), command_line(command)
    code = code_digest(command, Path.cwd())
    remedy = suggest_tune(name, db)
    with needing_plans(shown, db, remedy), Store.open(db, create=False) as store:
        stored = (
            store.plans.best(
                name, fingerprint=node.fingerprint(), node=node.node, software=software, code=code
            )
            if plan_id is None
            else store.plans.get(plan_id)
        )
        near = None if stored else _find_near(store, program, node)
    if stored is None:
        if near is not None:
            remedy = suggest_tune(name, db, measuring_options(near.plan))
            remedy += f", or pass --plan {near.id}, of {describe_trained(near.use_case)}"
        raise make_missing_plan_error(shown, f"on {node.node}", remedy)
    remedy = suggest_tune(name, db, measuring_options(stored.plan))
    reasons = check_found(stored, program, node, remedy=remedy, allow_stale=allow_stale)
    plan = stored.plan
    start = make_start(program, plan, node)
    is_python = not {WHOLE_RUNS, NO_PYTHON} & plan.options.keys()
    program.check(start.command, Path.cwd(), os.environ.get("PATH"), is_python=is_python)
    return PreparedScript(
        stored=stored,
        program=program,
        node=node,
        start=start,
        reasons=reasons,
        changed=find_changed(stored, program),
    )


def check_found(
    stored: StoredPlan, program: Program, node: Hardware, *, remedy: str, allow_stale: bool
) -> tuple[str, ...]:
    """Check that a stored plan can run a program on a node; give why it is stale, if it is.

    Raises:
        StalePlanError: It is, and the user does not allow that.
        InvalidPlanError: It is no plan of a script.
        UsageError: It has no value for a placeholder.
    """
    plan = stored.plan
    if plan.strategy != STRATEGY:
        raise InvalidPlanError(
            f"plan {stored.id} is for {stored.use_case}, which is no script: choose another"
        )
    software = current_software()
    reasons = stale_reasons(stored, fingerprint=node.fingerprint(), software=software)
    if reasons and not allow_stale:
        raise StalePlanError(
            f"plan {stored.id} is stale, {', '.join(reasons)}: run {remedy}, or pass --allow-stale"
        )
    check_script_plan(plan)
    values = placeholder_values(program, plan)
    if missing := [one for one in program.placeholders if one not in values]:
        raise UsageError(f"plan {stored.id} has no value for {{{missing[0]}}}: run {remedy}")
    return reasons


def launch_script(
    prepared: PreparedScript,
    *,
    db: str = "planner.db",
    listener: Listener = ignore,
    keeps_stdout: bool = False,
) -> ScriptRun:
    """Run a script in the current folder until it ends; its output is its own.

    It has the terminal: Ctrl-C is for the script. The run is a training in the database. Its steps
    are counted, as in a trial; it never waits for that. The listener receives the number of its
    row, and warnings. With ``keeps_stdout`` what it writes on stdout is sent to stderr.

    Raises:
        TrainingFailedError: It ended with another exit status than 0, or cannot be started.
        CancelledError: A signal ended it.
    """
    stored, node = prepared.stored, platform.node()
    if prepared.changed:
        listener(Warned(message=tell_changed(stored, prepared.changed)))
    rate = stored.throughput_samples_per_s.median
    host = TrainingHost(host=node, plan_id=stored.id, plan=stored.plan, plan_samples_per_s=rate)
    name = script_name(prepared.program.arguments)  # may be another command than was tuned
    training_id = begin_row(name, [host], rate, db, listener)
    began = time.monotonic()
    state, message, counted = TrainingStatus.FAILED, "it cannot be started", None
    try:
        with (
            heartbeat(training_id, db),
            # Searches on this machine wait meanwhile.
            training_noticed(Occupant.of_this_process(), lambda why: listener(Warned(message=why))),
        ):
            code, counted, said = _run(prepared, keeps_stdout=keeps_stdout)
        if code == 0:
            state, message = TrainingStatus.DONE, ""
        elif code < 0:
            message = f"the script has ended, {explain_exit(code)}"
            if -code in ASKING:
                state = TrainingStatus.CANCELLED
                raise CancelledError(-code)
            listener(Warned(message=message))
            raise CancelledError(-code, crash=message)
        else:
            command, path = prepared.start.command, os.environ.get("PATH")
            why = f": {find_script_cause(said, command, path)}" if said else ""
            message = f"the script has ended, {explain_exit(code)}{why}"
            raise TrainingFailedError(message)
    except OSError as error:
        message = f"{prepared.start.command[0]}: {error.strerror}"
        raise TrainingFailedError(message) from error
    finally:
        run = ScriptRun(
            prepared=prepared,
            elapsed_s=time.monotonic() - began,
            training_id=training_id,
            counted=counted,
        )
        end_row(training_id, db, listener, state, message or None, counted, run.batch)
    return run


def _run(
    prepared: PreparedScript, *, keeps_stdout: bool
) -> tuple[int, CountedSteps | None, str | None]:
    """Run a script to its end; give its exit code, its steps, and the words of its error."""
    start, options = prepared.start, prepared.stored.plan.options
    if WHOLE_RUNS in options:
        began = time.monotonic()
        code = run_in_foreground(start, keeps_stdout=keeps_stdout)
        run = CountedSteps(made=1, counted=1, time_s=time.monotonic() - began)
        return code, run if code == 0 else None, None
    with StepCounter(errors_alone=STEP_REGEX in options) as counter:
        watched = make_start(
            prepared.program, prepared.stored.plan, prepared.node, watch=counter.settings
        )
        code = run_in_foreground(watched, keeps_stdout=keeps_stdout)
    return code, counter.result(), counter.ended_by


def suggest_tune(name: str, db: str, options: Sequence[str] = ()) -> str:
    """Give the command that finds a plan."""
    workload, here = Workload(use_case=name), Hosts.this_machine()
    return suggest_command("tune", workload, db=db, hosts=here, options=options)


def _find_near(store: Store, program: Program, node: Hardware) -> StoredPlan | None:
    """Find the newest plan of the same script in another command that has its placeholders.

    One without more placeholders comes first: where a value is typed in the place of one, what the
    plan has for it is not used.
    """
    found: list[tuple[int, StoredPlan]] = []
    wanted = set(program.placeholders)
    for stored in reversed(store.plans.find(node=node.node)):
        if is_script(stored.use_case) and stored.fingerprint == node.fingerprint():
            other = Program(arguments=tuple(script_arguments(stored.use_case)))
            with suppress(IndexError, ScriptError):  # a name that is no command
                if other.target == program.target and wanted <= set(other.placeholders):
                    found.append((len(other.placeholders), stored))
    return min(found, key=lambda one: one[0])[1] if found else None


def find_changed(stored: StoredPlan, program: Program) -> tuple[str, ...]:
    """Give the files of a program that are not those which a plan was measured with."""
    measured, folder = code_of(stored.use_case_digest), Path.cwd()
    if measured in (None, code_digest(program.arguments, folder)):
        return ()
    return tuple(code_files(program.arguments, folder))


def tell_changed(stored: StoredPlan, files: Sequence[str]) -> str:
    """Say that files are not those which a plan was measured with."""
    return (
        f"{', '.join(files)}: plan {stored.id} was measured with other contents: tune again to "
        "know whether it is still the fastest"
    )

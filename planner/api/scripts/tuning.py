"""Tuning of a script as it is: its steps are watched from outside, and plans of it raced."""

from __future__ import annotations

import math
import os
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

from launch.case_facts import CaseFacts
from launch.errors import ScriptError, ScriptFailedError, ScriptRefusedError
from launch.plan import Plan, Setting
from launch.process_environment.allocators import find_allocators
from launch.reports import Noted, Report, Warned, Working
from launch.scripts.environment import NO_PYTHON
from launch.scripts.program import BATCH, PROCESSES, Program, ProgramKind
from launch.scripts.recognition import RecognisedSteps, has_losses
from launch.scripts.running_script import RunningScript, compile_step_regex
from launch.scripts.whole_run import WholeRun
from planner.api.tuning import NodeTuneResult, TuneResult, find_launch_plan_id, find_or_probe_node
from planner.cancellation import Cancellation
from planner.plans.software import current_software
from planner.quantities import format_count
from planner.scripts.contender import ScriptContender
from planner.scripts.naming import STEP_REGEX, WHOLE_RUNS, digest
from planner.scripts.outside_writes import warn_of_outside_writes
from planner.scripts.plans import (
    ScriptPlans,
    check_placeholders,
    find_patches,
    foreign_values,
    may_use_gpu,
)
from planner.store import Store, check_location, find_hazard
from planner.trials.contender import Contender
from planner.trials.machine_alone import machine_alone
from planner.trials.reports import Listener, TrialEnded, ignore
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.tune import NOTHING_MEASURED, Tuner
from planner.tuning.tune_request import TuneRequest
from probes.hardware import Hardware
from probes.node import probe_for_plans

_LOOK_SHARE, _LEAST_LOOK_S = 0.5, 60.0
"""Time in which a script must have shown its steps: a part of the budget, and some at least."""

_ENOUGH_LOOKS = 8
"""Times that a search is told to have at least, of what the script takes to its first steps: each
of a few plans takes as long, and those of the final twice."""

_SEED = 0
"""Of a script's random numbers, in a search with patches."""

_WHOLE_RUNS = "none was seen, so whole runs are timed: a run counts as one sample"

_NO_LOSS = "no finite loss seen in the first steps of the script as it is"
_NOT_COMPARED = f"{_NO_LOSS}: whether it learns the same with --patch loader is not compared"
_NOT_FOLLOWED = (
    "whether the script follows {batch} was not seen, as no samples of its steps were: one that "
    "does not would seem faster by as much as its batch is larger: check that it does"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedScript:
    """What is tuned: a command of the user's, and how it is watched."""

    program: Program

    step_regex: str | None = None
    """Lines of its output that end a step, where its optimizer is not to be seen."""

    patches: tuple[str, ...] = ()
    """Parts of it that may be changed: ``loader`` and ``model``."""

    in_place: bool = False
    """Run it in the user's folder, where it may write, not in a private view of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptTuneResult:
    """What a search found for a script."""

    tuned: TuneResult

    steps: str
    """How its steps were recognised, in a line."""


def tune_script(
    script: TunedScript,
    request: TuneRequest,
    *,
    db: str = "planner.db",
    listener: Listener = ignore,
    waits: bool = True,
) -> ScriptTuneResult:
    """Search for the fastest way to run a script on this machine, without an edit of it.

    The request's workload has the script's name. See `planner.api.tuning.tune`.

    Raises:
        MachineBusyError: That is so, and ``waits`` is false.
        ScriptError: The command cannot be measured as it is written, or not within the budget.
        ScriptFailedError: It makes no steps as the user runs it, or an error of its own ends it
            before any plan has succeeded.
        NoPlanError: No trial succeeded.
        StoreError: The database cannot be used.
    """
    # Before it waits for the machine, which may be long.
    program = script.program
    check_placeholders(program)
    _check_step_regex(script)
    is_python = program.kind is not ProgramKind.OTHER
    command, path = program.fill(program.own_values), os.environ.get("PATH")
    program.check(command, Path.cwd(), path, is_python=is_python)
    check_location(db)
    if (hazard := find_hazard(db)) is not None:
        listener(Warned(message=hazard))
    if not script.in_place and (outside := warn_of_outside_writes(command, Path.cwd())) is not None:
        listener(Warned(message=outside))
    with machine_alone(listener, Cancellation(), waits=waits):
        started = time.monotonic()
        node, software = probe_for_plans(), current_software()
        with ScriptTrials(script, node) as run:
            listener(Working(what="watching the script's first steps"))
            try:
                plans, steps = run.look(request.budget_s)
            except KeyboardInterrupt:
                listener(Noted(message=NOTHING_MEASURED))
                raise
            listener(Noted(message=f"steps: {steps}"))
            if len(script.program.choices.get(BATCH, ())) > 1 and not run.sees_batch:
                listener(Warned(message=_NOT_FOLLOWED))
            _check_budget(request, run.look_s)
            if script.patches and not run.has_losses:
                listener(Warned(message=_NOT_COMPARED))
            if script.program.choices:
                listener(Noted(message=_values_line(script.program)))
            if left_out := plans.left_out:
                words = ", ".join(f"{name}={value}" for name, value in left_out)
                cores = format_count(plans.cores, "core")
                why = f"needs more than {cores} with any of the other values"
                listener(Noted(message=f"not tried: {words}, which {why}"))
            with Store.open(db) as store:
                node = find_or_probe_node(store, node, listener)
                findings = Findings(
                    request, _facts(script, plans), node, software, store.studies, subject=plans
                )

                def end_with_own_error(report: Report, host: str | None = None, /) -> None:
                    listener(report, host)
                    if isinstance(report, TrialEnded) and not findings.candidates():
                        run.raise_own_error()

                checked_s = time.monotonic() - started
                tuner = Tuner(findings, run.start, end_with_own_error, checked_s=checked_s)
                outcome = conclude(findings, store.plans, interrupted=tuner.search())
                launch_plan_id = find_launch_plan_id(store, outcome.plan)
    tuned = TuneResult(
        nodes=(NodeTuneResult(host=node.node, outcome=outcome),),
        elapsed_s=time.monotonic() - started,
        interrupted=outcome.interrupted,
        launch_plan_id=launch_plan_id,
    )
    return ScriptTuneResult(tuned=tuned, steps=steps)


class ScriptTrials:
    """Starts a script under plans. The first start is looked at, and then the first contender."""

    def __init__(self, script: TunedScript, node: Hardware) -> None:
        self._script = script
        self._node = node
        self._watched: RunningScript | WholeRun | None = None
        self._own_plan: Plan | None = None
        self._own: ScriptContender | None = None
        self._own_losses: tuple[float | None, ...] = ()
        self.sees_batch = False
        """Whether a trial whose script does not follow ``{batch}`` is known, or cannot mislead."""
        self.look_s = 0.0
        """Time in which the script as it is came to its first steps."""

    def __enter__(self) -> ScriptTrials:
        return self

    def __exit__(self, *_: object) -> None:
        if self._watched is not None:
            self._watched.close()

    def look(self, budget_s: float) -> tuple[ScriptPlans, str]:
        """Run the script as it is until its steps are known; give its plans, and say its steps.

        Raises:
            ScriptError: The command names something that is not there.
            ScriptFailedError: It makes no steps, or none that can be told; or it shows no loss, and
                patches of its model would have to be held against that.
        """
        program, cores = self._script.program, self._node.cpu.usable_cores
        own, counts_runs = program.own_values, WHOLE_RUNS in self._options()
        batch, processes = int(own.get(BATCH, 1)), int(own.get(PROCESSES, 1))
        plans = ScriptPlans(
            program=program,
            samples=1 if counts_runs else batch,
            processes=processes,
            counts_runs=counts_runs,
            cores=cores,
            allocators=("default", "retain", *find_allocators()),
            patches=find_patches(self._script.patches, program, has_gpu=may_use_gpu(self._node)),
            steps=self._options(),
        )
        began, limit_s = time.monotonic(), max(_LEAST_LOOK_S, _LOOK_SHARE * budget_s)
        self._watched = self._run(plans.defaults_plan)
        if isinstance(self._watched, RunningScript):
            self._watched.make_steps(1, time_limit_s=limit_s)
            self.look_s = time.monotonic() - began
        self._own_losses = self._watched.first_losses
        if counts_runs:
            steps, self.sees_batch = _WHOLE_RUNS, True  # a run is one sample, whatever its batch
        elif self._script.step_regex is not None:
            steps = f"lines of its output that match {shlex.quote(self._script.step_regex)}"
        else:
            seen = self._watched.recognised
            assert seen is not None  # or it had raised
            steps = str(seen)
            samples = seen.whole_samples or seen.samples_per_step
            self.sees_batch = samples is not None
            each = batch if samples is None else max(1, samples // seen.ranks)
            plans = replace(plans, samples=each, processes=seen.ranks)
            if samples is not None and self._splits_batch(plans, samples, limit_s):
                plans = replace(plans, samples=samples, splits_batch=True)
        self._own_plan = plans.defaults_plan
        if not self.sees_batch:
            counted = plans.defaults_plan.node_batch
            steps += f": a step counts as {format_count(counted, 'sample')}"
        if "model" in self._script.patches and not self.has_losses:
            raise ScriptRefusedError(
                f"{_NO_LOSS}, so that changes of its model cannot be held against it: leave "
                "--patch model out, or let it call backward() on a loss of one number"
            )
        return plans, steps

    @property
    def has_losses(self) -> bool:
        """Whether first losses of patched scripts can be held against the user's own."""
        return has_losses(self._own_losses)

    def _splits_batch(self, plans: ScriptPlans, samples: int, limit_s: float) -> bool:
        """Tell whether a step has as many samples with another number of processes."""
        others = [
            n for n in self._script.program.choices.get(PROCESSES, ()) if n != plans.processes
        ]
        if not others:
            return False
        own = plans.defaults_plan
        try:
            seen = self._look_beside(replace(own, processes=int(others[0])), limit_s)
        except ScriptFailedError:  # then its trials tell why
            return False
        return seen is not None and seen.whole_samples == samples

    def _look_beside(self, plan: Plan, limit_s: float) -> RecognisedSteps | None:
        """Run the script under another plan until its steps are known; give them."""
        while True:
            try:
                with self._run(plan) as script:
                    script.make_steps(1, time_limit_s=limit_s)
                    return script.recognised
            except ScriptFailedError as error:
                watched = self._watched
                if watched is None or not error.lacks_port:
                    raise
                watched.close()  # it may have that port
                self._watched = None

    def start(self, plan: Plan) -> Contender:
        """Start the script under a plan.

        Raises:
            TrialFailedError: It cannot be started so.
        """
        if plan == self._own_plan:
            run, start_s = self._run_watched, self.look_s
            self._own = ScriptContender(plan, run, self._node, start_s=start_s)
            return self._own
        is_same_work = not foreign_values(self._script.program, plan)
        losses = self._own_losses if is_same_work else ()
        return ScriptContender(plan, self._run, self._node, own_losses=losses)

    def raise_own_error(self) -> None:
        """Raise what has ended the script as it is in its trial, where any plan would show it too.

        Raises:
            ScriptFailedError: It has ended with an error of its own.
        """
        error = None if self._own is None else self._own.failure
        # What is refused, or has no time or memory left, another plan may do.
        if type(error) is ScriptFailedError and not (error.is_time_limit or error.out_of_memory):
            raise error

    def _run_watched(self, plan: Plan) -> RunningScript | WholeRun:
        """Give the run that was watched, once; afterwards, where that has ended, another one."""
        watched, self._watched = self._watched, None
        return self._run(plan) if watched is None else watched

    def _options(self) -> dict[str, Setting]:
        """Give the options of a plan that say what a step is."""
        regex, is_other = self._script.step_regex, self._script.program.kind is ProgramKind.OTHER
        if regex is not None:
            return {STEP_REGEX: regex, **({NO_PYTHON: True} if is_other else {})}
        return {WHOLE_RUNS: True} if is_other else {}

    def _run(self, plan: Plan) -> RunningScript | WholeRun:
        script = self._script
        if WHOLE_RUNS in plan.options:
            return WholeRun(script.program, plan, self._node, in_place=script.in_place)
        return RunningScript(
            script.program,
            plan,
            self._node,
            in_place=script.in_place,
            step_regex=script.step_regex,
            seed=_SEED if script.patches else None,  # their first losses are compared
        )


def _check_step_regex(script: TunedScript) -> None:
    """Check that lines of the output can be told to be steps, where they count as such.

    Raises:
        ScriptError: It is no regular expression, or whose lines they are cannot be seen.
    """
    if script.step_regex is None:
        return
    compile_step_regex(script.step_regex)
    if PROCESSES in script.program.placeholders:
        raise ScriptError(
            "--step-regex and {processes}: whether a line is a step of one process or of all "
            "cannot be seen: leave one out"
        )


def _check_budget(request: TuneRequest, look_s: float) -> None:
    """Check that the budget holds the start of another plan at all, once the first has started."""
    if request.trials != 0 and 2 * look_s > request.budget_s:
        raise ScriptError(
            f"--budget {request.budget_s:g}s: the script took {look_s:.0f} s to its first steps, "
            "so that no other plan can be compared with it: use "
            f"--budget {math.ceil(_ENOUGH_LOOKS * look_s / 60)}m"
        )


def _values_line(program: Program) -> str:
    """Say what is varied in the command: nobody may have named the values of some placeholders."""
    values = [f"{name}={','.join(map(str, one))}" for name, one in program.choices.items()]
    return f"values: {' '.join(values)}; the first is your own: --choices names others"


def _facts(script: TunedScript, plans: ScriptPlans) -> CaseFacts:
    """Give what a planner knows of a script: of its model and its data that is nothing."""
    batch = plans.defaults_plan.node_batch
    program = script.program
    return CaseFacts(
        default_batch=batch,
        train_samples=batch,
        validation_samples=0,
        parameter_count=0,
        parameter_bytes=0,
        max_stages=1,
        digest=digest(program, Path.cwd(), step_regex=script.step_regex, patches=script.patches),
        allocators=plans.allocators,
    )

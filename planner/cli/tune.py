"""Command line of ``ddlplan tune``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from launch.workload import Workload
from planner.cli.jobs import Detach, submit_command
from planner.cli.options import (
    DEFAULT_DATABASE,
    MOST_EPOCHS,
    AllowRoot,
    AsJson,
    CaseSettings,
    Database,
    DataFolder,
    HostFile,
    MaybeTuned,
    Mpirun,
    NoWait,
    Seed,
    SshConfig,
    option,
    search_option,
    what_option,
)
from planner.cli.scripts import (
    Choices,
    Command,
    InPlace,
    NoPython,
    Patch,
    StepRegex,
    as_given,
    check_options,
    find_parts,
    make_program,
    needed_case,
    refuse_without_command,
)
from planner.cli.values import check_data, duration_s, find_hosts, names_of, one_of
from planner.errors import UsageError
from planner.records.job_record import JobKind
from planner.report.output import start_output

_FOR_SCRIPTS_ALONE = ("choices", "step_regex", "no_python", "patch", "in_place")
_FOR_SCRIPTS = (
    *("command", "seed", "budget", "trials", "batch_size", "fresh", "no_wait", "db", "json"),
    *_FOR_SCRIPTS_ALONE,
)
"""Options that a script may have too."""

_NOT_FOR_REPLAYS = {
    "hosts": "records are of one machine",
    "data": "records are of the data that were read then",
    "set": "records are of the settings that the use case had then",
}


def tune(
    context: typer.Context,
    command: Command = None,
    *,
    use_case: MaybeTuned = None,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    seed: Seed = 0,
    epochs: Annotated[
        int,
        what_option(
            "--epochs",
            help_="Epochs of the training to come: compile time is divided among them.",
            metavar="N",
            min=1,
            max=MOST_EPOCHS,
        ),
    ] = 10,
    budget: Annotated[
        str,
        search_option(
            "--budget",
            help_="Time to search, loading a use case and its data apart: 90, 90s, 5m, 1h.",
            metavar="DURATION",
        ),
    ] = "5m",
    trials: Annotated[
        int | None,
        search_option("--trials", help_="Try at most this many plans.", metavar="N", min=0),
    ] = None,
    strategies: Annotated[
        str | None,
        search_option("--strategies", help_="Try only these strategies: a,b,...", metavar="NAMES"),
    ] = None,
    batch_size: Annotated[
        int | None,
        search_option(
            "--batch-size",
            help_="Samples of a step on each host: try no other batch.",
            metavar="N",
            min=1,
        ),
    ] = None,
    effective_batch: Annotated[
        int | None,
        search_option(
            "--effective-batch",
            help_="The same, where gradients are added up over micro-batches.",
            metavar="N",
            min=1,
        ),
    ] = None,
    max_batch: Annotated[
        int | None,
        search_option("--max-batch", help_="Try no larger batch than this.", metavar="N", min=1),
    ] = None,
    precision: Annotated[
        str,
        search_option(
            "--precision",
            help_="fp32, bf16 (after a check of the model), or auto: the faster one.",
            metavar="PRECISION",
        ),
    ] = "fp32",
    objective: Annotated[
        str,
        search_option(
            "--objective",
            help_="Rank plans by throughput, or by time-to-loss: by what their samples teach too.",
            metavar="WHAT",
        ),
    ] = "throughput",
    lr_scaling: Annotated[
        str,
        search_option(
            "--lr-scaling",
            help_="How the learning rate of the plan goes with its batch: none, linear, sqrt.",
            metavar="HOW",
        ),
    ] = "none",
    target: Annotated[
        float | None,
        search_option("--target", help_="Validation loss to predict the time to.", metavar="LOSS"),
    ] = None,
    target_accuracy: Annotated[
        float | None,
        search_option(
            "--target-accuracy",
            help_="Accuracy to predict the time to, such as 0.9.",
            metavar="A",
            min=0,
            max=1,
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        search_option("--no-cache", help_="Decode pictures in every epoch; store none."),
    ] = False,
    replay: Annotated[
        Path | None,
        search_option(
            "--replay", help_="Search on a file of trials export; run nothing.", metavar="FILE"
        ),
    ] = None,
    fresh: Annotated[bool, search_option("--fresh", help_="Ignore stored trials.")] = False,
    no_wait: NoWait = False,
    hosts: HostFile = None,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    detach: Detach = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    verbose: Annotated[bool, option("--verbose", help_="Say why a strategy is not tried.")] = False,
    choices: Choices = None,
    step_regex: StepRegex = None,
    no_python: NoPython = False,
    patch: Patch = None,
    in_place: InPlace = False,
) -> None:
    """Search for the fastest way to train a use case, or to run a script as it is."""
    out = start_output("tune", as_json=json)
    if command:
        if hosts is not None:
            raise UsageError(
                "--hosts and a command after --: tune on each host, with one database (--db URL, "
                "or plans export and plans import), then launch --hosts"
            )
        check_options(context, _FOR_SCRIPTS, out)
        program = make_program(command, choices, batch_size=batch_size, is_python=not no_python)
        budget_s = duration_s("--budget", budget)
        patches = find_parts(patch, is_python=not no_python)
        from planner.api.scripts.tuning import TunedScript
        from planner.commands.scripts.tune import tune as tune_script
        from planner.scripts.naming import script_name
        from planner.tuning.tune_request import TuneRequest

        script = TunedScript(
            program=program, step_regex=step_regex, patches=patches, in_place=in_place
        )
        of_script = TuneRequest(
            workload=Workload(use_case=script_name(program.arguments), seed=seed),
            budget_s=budget_s,
            trials=trials,
            fresh=fresh,
        )
        tune_script(script, of_script, db, out, waits=not no_wait)
        return
    refuse_without_command(context, _FOR_SCRIPTS_ALONE)
    if replay is not None:
        _check_replay(context)
    from launch.noise_scale.efficiency import LR_SCALINGS
    from launch.strategies import load_strategy
    from launch.use_cases import make_workload
    from planner.plans.objective import OBJECTIVES, TIME_TO_LOSS

    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    check_data(data, found, use_case)
    _check_one_of(
        {"--batch-size": batch_size, "--effective-batch": effective_batch, "--max-batch": max_batch}
    )
    targets = {"--target": target, "--target-accuracy": target_accuracy}
    _check_one_of(targets)
    checked: dict[str, Any] = {
        "workload": Workload(use_case=str(replay), seed=seed)
        if use_case is None and replay is not None
        else make_workload(
            needed_case(use_case, "tune"),
            settings=set or (),
            data=data,
            seed=seed,
            data_is_here=found.is_local,
        ),
        "budget_s": duration_s("--budget", budget),
        "precision": one_of("--precision", precision, ("fp32", "bf16", "auto")),
        "strategies": None
        if strategies is None
        else names_of("--strategies", strategies, load_strategy),
        "objective": one_of("--objective", objective, OBJECTIVES),
        "lr_scaling": one_of("--lr-scaling", lr_scaling, LR_SCALINGS),
    }
    for name, value in targets.items():
        if value is not None and objective != TIME_TO_LOSS:
            raise UsageError(f"{name} without --objective {TIME_TO_LOSS}: give both")
        if value is not None and not math.isfinite(value):
            raise UsageError(f"{name} {value}: name a number that a training can reach")
    if objective == TIME_TO_LOSS and replay is not None:
        raise UsageError(f"--objective {objective} and --replay: records tell no noise scale")
    found.check_objective(objective)  # before it is a job
    if not found.is_local and replay is None:
        found.access.require_mpirun()

    # Only now: what they import takes a second, and a slip of the finger is answered at once.
    from planner.tuning.tune_request import TuneRequest

    request = TuneRequest(
        **checked,
        trials=trials,
        batch_size=batch_size if effective_batch is None else effective_batch,
        max_batch=max_batch,
        no_cache=no_cache,
        fresh=fresh,
        epochs=epochs,
        verbose=verbose,
        target_loss=target,
        target_accuracy=target_accuracy,
    )
    if detach:
        submit_command(context, JobKind.TUNE, db, out)
        return
    if replay is not None:
        from planner.commands.grids import replay_grid

        replay_grid(request, replay, out)
        return
    from planner.commands.tune import tune as tune_request

    tune_request(request, found, db, out, waits=not no_wait)


def _check_replay(context: typer.Context) -> None:
    """Refuse options that would change nothing of what was recorded.

    Raises:
        UsageError: One was given.
    """
    for name, why in _NOT_FOR_REPLAYS.items():
        if context.params[name]:
            given = as_given(context, name)
            raise UsageError(f"--replay and {given} exclude each other: {why}")


def _check_one_of(options: Mapping[str, float | None]) -> None:
    given = [name for name, value in options.items() if value is not None]
    if len(given) > 1:
        raise typer.BadParameter(f"{' and '.join(given)} exclude each other: give one")

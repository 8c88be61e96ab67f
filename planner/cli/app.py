"""What can be typed? The commands with their options, read and handed on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.options import (
    DEFAULT_DATABASE,
    AllowRoot,
    AsCsv,
    AsJson,
    Database,
    DataFolder,
    HostFile,
    MaybeCase,
    MaybeNode,
    Mpirun,
    NeededCase,
    Seed,
    SshConfig,
    named,
    option,
)
from planner.cli.plans import plans_app
from planner.cli.values import (
    case_named,
    check_one_format,
    checked_case,
    data_path,
    duration_s,
    one_of,
    other_machines,
    reach,
    reading,
    strategies_named,
)
from planner.errors import UsageError
from planner.output import start_output

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not export it
_SETTINGS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="ddlplan",
    help="Measure how to train a model fastest on each of your machines, then train it so.",
    epilog="Every option can be given as DDLPLAN_<OPTION> too; the option itself comes first.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_SETTINGS,
)
app.add_typer(plans_app, name="plans")


@app.callback()
@plans_app.callback()
def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command()
def probe(
    *,
    hosts: HostFile = None,
    quick: Annotated[bool, option("--quick", help_="Below 2 s: measure nothing.")] = False,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Find out what this machine, or each host, is and how fast it can be at best."""
    out = start_output("probe", as_json=json)
    listed = other_machines(hosts, out)
    if listed is None:
        from planner.commands.probe import probe_here

        probe_here(db, out, quick=quick)
        return
    from planner.commands.probe_hosts import probe_hosts

    reached = reach(ssh_config, mpirun, allow_root=allow_run_as_root)
    probe_hosts(listed, reached, db, out, quick=quick)


@app.command()
def tune(
    *,
    use_case: NeededCase,
    data: DataFolder = None,
    hosts: HostFile = None,
    budget: Annotated[
        str, option("--budget", help_="Time to search: 90, 90s, 5m, 1h.", metavar="DURATION")
    ] = "5m",
    trials: Annotated[
        int | None, option("--trials", help_="Search at most so many plans.", min=0)
    ] = None,
    seed: Seed = 0,
    batch_size: Annotated[
        int | None, option("--batch-size", help_="The only node batch to try.", min=1)
    ] = None,
    max_batch: Annotated[
        int | None, option("--max-batch", help_="The largest node batch to try.", min=1)
    ] = None,
    precision: Annotated[
        str, option("--precision", help_="fp32 keeps the numerics; bf16; auto: either.")
    ] = "fp32",
    no_cache: Annotated[
        bool, option("--no-cache", help_="Decode the files in every epoch, keep no pictures.")
    ] = False,
    strategies: Annotated[str | None, option("--strategies", help_="Only these: a,b,...")] = None,
    epochs: Annotated[
        int,
        option("--epochs", help_="Of the training to come; compiling is charged over them.", min=1),
    ] = 10,
    fresh: Annotated[bool, option("--fresh", help_="Leave earlier trials aside.")] = False,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Search for the fastest way to train a use case on this machine, or on each host."""
    from launch.use_cases import check_spec, normalise_spec

    out = start_output("tune", as_json=json)
    listed = other_machines(hosts, out)
    check_spec(use_case)
    if batch_size is not None and max_batch is not None:
        raise typer.BadParameter("--batch-size and --max-batch exclude each other: give one")
    checked: dict[str, Any] = {
        "use_case": normalise_spec(use_case),
        "data": data_path(data, listed),
        "budget_s": duration_s("--budget", budget),
        "precision": one_of("--precision", precision, ("fp32", "bf16", "auto")),
        "strategies": strategies_named(strategies),
    }

    # Only now: what they import takes a second, and a slip of the finger is answered at once.
    from planner.tune_request import TuneRequest

    request = TuneRequest(
        **checked,
        trials=trials,
        seed=seed,
        batch_size=batch_size,
        max_batch=max_batch,
        keeps_pictures=not no_cache,
        names_strategies=strategies is not None,
        fresh=fresh,
        epochs=epochs,
    )
    if listed is None:
        from planner.commands.tune import tune_here

        tune_here(request, db, out)
        return
    from planner.commands.tune_hosts import tune_hosts

    reached = reach(ssh_config, mpirun, allow_root=allow_run_as_root)
    tune_hosts(request, listed, hosts, reached, db, out)


@app.command()
def launch(
    *,
    use_case: NeededCase,
    data: DataFolder = None,
    hosts: HostFile = None,
    epochs: Annotated[int, option("--epochs", help_="Times through the data.", min=1)] = 1,
    plan: Annotated[int | None, option("--plan", help_="Number of a stored plan.")] = None,
    global_batch: Annotated[
        int | None, option("--global-batch", help_="Samples per step over all nodes.", min=1)
    ] = None,
    all_hosts: Annotated[
        bool, option("--all-hosts", help_="Use every host, though fewer may be faster.")
    ] = False,
    seed: Seed = 0,
    checkpoint: Annotated[
        Path | None,
        option(
            "--checkpoint", help_="Folder to keep the training in.", parser=named, metavar="PATH"
        ),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        option("--checkpoint-every", help_="How often: 90s, 10m (default).", metavar="DURATION"),
    ] = None,
    resume: Annotated[
        bool, option("--resume", help_="Go on from the newest checkpoint, with its seed.")
    ] = False,
    max_restarts: Annotated[
        int,
        option("--max-restarts", help_="Go on so often after an accident, not an error.", min=0),
    ] = 0,
    hang_timeout: Annotated[
        str | None,
        option(
            "--hang-timeout",
            help_="Time without a step that ends the job; by default 20 steps, at least 60s.",
            metavar="DURATION",
        ),
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", help_="Print the commands and start nothing.")
    ] = False,
    wire: Annotated[
        str, option("--wire", help_="Gradients between nodes: fp32, or rounded to bf16.")
    ] = "fp32",
    keep_shares: Annotated[
        bool, option("--keep-shares", help_="Change no shares while training.")
    ] = False,
    allow_stale: Annotated[
        bool, option("--allow-stale", help_="Use a plan of other hardware or software.")
    ] = False,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Train with the best stored plan of each node, through mpirun."""
    from launch.use_cases import check_spec, normalise_spec
    from planner.commands.launch import launch as launch_job
    from planner.job_making import LaunchRequest

    out = start_output("launch", as_json=json)
    check_spec(use_case)
    if checkpoint_every is not None and checkpoint is None:
        raise UsageError(
            f"--checkpoint-every {checkpoint_every} and no --checkpoint: name a folder"
        )
    request = LaunchRequest(
        use_case=normalise_spec(use_case),
        data=data_path(data, other_machines(hosts, out)),
        hosts=hosts,
        epochs=epochs,
        plan_id=plan,
        global_batch=global_batch,
        seed=seed,
        wire=one_of("--wire", wire, ("fp32", "bf16")),
        keep_shares=keep_shares,
        allow_stale=allow_stale,
        all_hosts=all_hosts,
        checkpoint=checkpoint,
        checkpoint_every_s=duration_s("--checkpoint-every", checkpoint_every or "10m"),
        resumes=resume,
        max_restarts=max_restarts,
        hang_limit_s=None if hang_timeout is None else duration_s("--hang-timeout", hang_timeout),
        reach=reach(ssh_config, mpirun, allow_root=allow_run_as_root),
    )
    launch_job(request, db, out, dry_run=dry_run)


@app.command()
def trials(
    *,
    use_case: MaybeCase = None,
    node: MaybeNode = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show every trial, failed ones with their reason."""
    from planner.commands.plans import show_trials

    out = start_output("trials", as_json=json)
    check_one_format(json=json, csv=csv)
    show_trials(reading(db), out, case_named(use_case), node, as_csv=csv)


@app.command("use-cases")
def use_cases(*, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Show the built-in use cases."""
    from launch.use_cases import use_case_summaries

    _show_summaries("use-cases", use_case_summaries(), as_json=json)


@app.command("strategies")
def strategies_command(*, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Show the parallel strategies."""
    from launch.strategies import strategy_summaries

    _show_summaries("strategies", strategy_summaries(), as_json=json)


@app.command()
def doctor(
    *,
    hosts: HostFile = None,
    use_case: Annotated[
        str | None, option("--use-case", help_="See that every host has this one.")
    ] = None,
    data: DataFolder = None,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Check whether this machine, and the hosts of a file, can do the job."""
    out = start_output("doctor", as_json=json)
    from launch.mpi.settings import MpiSettings

    case, settings = (
        checked_case(use_case),
        MpiSettings(mpirun=mpirun, allow_root=allow_run_as_root),
    )
    listed = other_machines(hosts, out)
    folder = data_path(data, listed)
    if listed is None and hosts is None:
        from planner.commands.doctor import examine

        examine(db, settings, out)
        return
    from planner.commands.doctor_hosts import DoctorRequest, examine_hosts
    from planner.named_hosts import find_hosts

    request = DoctorRequest(
        listed=find_hosts(hosts, os.environ),
        use_case=case,
        data=folder,
        ssh_config=ssh_config,
        mpi=settings,
    )
    examine_hosts(request, db, out)


def _show_summaries(command: str, summaries: dict[str, str], *, as_json: bool) -> None:
    out = start_output(command, as_json=as_json)
    width = max(map(len, summaries))
    for name, summary in summaries.items():
        out.say(f"{name:<{width}}  {summary}")
    out.finish([{"name": name, "summary": summary} for name, summary in summaries.items()])


def call(arguments: list[str]) -> int:
    """Run the command that the arguments name; give its exit status.

    Raises:
        UsageError: The arguments make no sense.
    """
    try:
        return app(args=arguments, prog_name="ddlplan", standalone_mode=False) or 0
    except typer.Abort as ended:
        raise KeyboardInterrupt from ended
    except _UsageError as error:
        raise UsageError(_explain_usage(error)) from error


def _explain_usage(error: Exception) -> str:
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if isinstance(error, typer.BadParameter) or context is None:
        return message
    return f"{message.rstrip('.')}: see {context.command_path} --help"

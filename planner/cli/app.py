"""Command line: the commands with their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.compare import compare
from planner.cli.db import db_app
from planner.cli.grouped_help import GroupedCommand
from planner.cli.jobs import Detach, jobs_app, submit_command
from planner.cli.options import (
    DEFAULT_DATABASE,
    AllowRoot,
    AsJson,
    CaseSettings,
    Database,
    DataFolder,
    HostFile,
    MaybeTuned,
    Mpirun,
    NeededCase,
    NoWait,
    Seed,
    SshConfig,
    faults_option,
    hosts_option,
    named,
    option,
    output_option,
    plan_option,
    search_option,
    serve_option,
    what_option,
)
from planner.cli.plans import plans_app
from planner.cli.report import report
from planner.cli.runs import runs_app
from planner.cli.sweeps import sweep_app
from planner.cli.trials import trials_app
from planner.cli.values import (
    check_data,
    checked_name,
    duration_s,
    find_hosts,
    one_of,
    strategies_named,
)
from planner.cli.weights import weights_app
from planner.errors import UsageError
from planner.records.job_record import JobKind
from planner.report.output import start_output

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
app.add_typer(trials_app, name="trials")
app.add_typer(sweep_app, name="sweep")
app.add_typer(runs_app, name="runs")
app.add_typer(weights_app, name="weights")
app.add_typer(jobs_app, name="jobs")
app.add_typer(db_app, name="db")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        from planner.plans.software import current_software

        typer.echo(f"ddlplan {current_software()['ddlplan']}")
        raise typer.Exit


@app.callback()
def _handle_root_options(
    context: typer.Context,
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    _show_help(context)


@plans_app.callback()
@runs_app.callback()
@weights_app.callback()
@jobs_app.callback()
@db_app.callback()
def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


@app.command(cls=GroupedCommand)
def probe(
    *,
    hosts: HostFile = None,
    quick: Annotated[bool, option("--quick", help_="Below 2 s: measure nothing.")] = False,
    data: Annotated[
        Path | None,
        what_option(
            "--data", help_="Measure too how fast this folder's files are read.", metavar="PATH"
        ),
    ] = None,
    no_wait: NoWait = False,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Measure what this machine, or each host, can do."""
    out = start_output("probe", as_json=json)
    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    check_data(data, found)
    if data is not None and quick:
        raise typer.BadParameter("--data and --quick exclude each other: give one")
    if not found.is_local:
        found.access.check_mpirun()
    from planner.commands.probe import show_probe

    show_probe(found, db, out, quick=quick, data=data, waits=not no_wait)


@app.command(cls=GroupedCommand)
def tune(
    context: typer.Context,
    *,
    use_case: MaybeTuned = None,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    seed: Seed = 0,
    epochs: Annotated[
        int,
        what_option(
            "--epochs",
            help_="Epochs to come, over which compile time is divided.",
            metavar="N",
            min=1,
        ),
    ] = 10,
    budget: Annotated[
        str, search_option("--budget", help_="Time to search: 90, 90s, 5m, 1h.", metavar="DURATION")
    ] = "5m",
    trials: Annotated[
        int | None,
        search_option("--trials", help_="Try at most so many plans.", metavar="N", min=0),
    ] = None,
    strategies: Annotated[
        str | None, search_option("--strategies", help_="Try only these: a,b,...", metavar="NAMES")
    ] = None,
    batch_size: Annotated[
        int | None,
        search_option("--batch-size", help_="The only node batch to try.", metavar="N", min=1),
    ] = None,
    max_batch: Annotated[
        int | None,
        search_option("--max-batch", help_="The largest node batch to try.", metavar="N", min=1),
    ] = None,
    precision: Annotated[
        str,
        search_option(
            "--precision", help_="fp32 keeps the numerics; bf16; auto: either.", metavar="PRECISION"
        ),
    ] = "fp32",
    objective: Annotated[
        str,
        search_option(
            "--objective",
            help_="throughput, or time-to-loss: also by what samples are worth in a batch.",
            metavar="WHAT",
        ),
    ] = "throughput",
    lr_scaling: Annotated[
        str,
        search_option(
            "--lr-scaling",
            help_="Learning rate of the plan with its batch: none, linear, sqrt.",
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
            help_="The same for an accuracy, such as 0.9.",
            metavar="A",
            min=0,
            max=1,
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        search_option("--no-cache", help_="Decode the files in every epoch; store no pictures."),
    ] = False,
    replay: Annotated[
        Path | None,
        search_option(
            "--replay", help_="Search on what trials export wrote; runs nothing.", metavar="FILE"
        ),
    ] = None,
    fresh: Annotated[bool, search_option("--fresh", help_="Ignore earlier trials.")] = False,
    no_wait: NoWait = False,
    hosts: HostFile = None,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    detach: Detach = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    verbose: Annotated[bool, option("--verbose", help_="Say why a strategy is not tried.")] = False,
) -> None:
    """Search for the fastest way to train a use case."""
    from launch.noise_scale.efficiency import LR_SCALINGS
    from launch.use_cases import make_workload
    from launch.workload import Workload
    from planner.plans.objective import OBJECTIVES

    out = start_output("tune", as_json=json)
    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    check_data(data, found)
    if batch_size is not None and max_batch is not None:
        raise typer.BadParameter("--batch-size and --max-batch exclude each other: give one")
    if use_case is None and replay is None:
        raise UsageError("Missing option '--use-case': see ddlplan tune --help")
    checked: dict[str, Any] = {
        "workload": Workload(use_case=str(replay), seed=seed)
        if use_case is None
        else make_workload(
            use_case, settings=set or (), data=data, seed=seed, data_is_here=found.is_local
        ),
        "budget_s": duration_s("--budget", budget),
        "precision": one_of("--precision", precision, ("fp32", "bf16", "auto")),
        "strategies": strategies_named(strategies),
        "objective": one_of("--objective", objective, OBJECTIVES),
        "lr_scaling": one_of("--lr-scaling", lr_scaling, LR_SCALINGS),
    }
    if objective == OBJECTIVES[0] and (target, target_accuracy) != (None, None):
        raise UsageError("--target without --objective time-to-loss: give both")
    if target is not None and target_accuracy is not None:
        raise typer.BadParameter("--target and --target-accuracy exclude each other: give one")
    if objective != OBJECTIVES[0] and replay is not None:
        raise UsageError(f"--objective {objective} and --replay: records tell no noise scale")

    # Only now: what they import takes a second, and a slip of the finger is answered at once.
    from planner.tuning.tune_request import TuneRequest

    request = TuneRequest(
        **checked,
        trials=trials,
        batch_size=batch_size,
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
    if not found.is_local:
        found.access.check_mpirun()
    from planner.commands.tune import tune as tune_request

    tune_request(request, found, db, out, waits=not no_wait)


@app.command(cls=GroupedCommand)
def launch(
    context: typer.Context,
    *,
    use_case: NeededCase,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    seed: Seed = 0,
    epochs: Annotated[
        int, what_option("--epochs", help_="Times through the data.", metavar="N", min=1)
    ] = 1,
    plan: Annotated[
        int | None, plan_option("--plan", help_="Number of a stored plan.", metavar="ID")
    ] = None,
    global_batch: Annotated[
        int | None,
        plan_option("--global-batch", help_="Samples per step over all nodes.", metavar="N", min=1),
    ] = None,
    lr_scaling: Annotated[
        str | None,
        plan_option(
            "--lr-scaling",
            help_="Learning rate with the batch: none, linear, sqrt; else as the plan says.",
            metavar="HOW",
        ),
    ] = None,
    allow_stale: Annotated[
        bool, plan_option("--allow-stale", help_="Use a plan of other hardware or software.")
    ] = False,
    checkpoint: Annotated[
        Path | None,
        faults_option(
            "--checkpoint",
            help_="Folder for checkpoints of the training.",
            parser=named,
            metavar="PATH",
        ),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        faults_option(
            "--checkpoint-every", help_="How often: 90s, 10m (default).", metavar="DURATION"
        ),
    ] = None,
    resume: Annotated[
        bool, faults_option("--resume", help_="Go on from the newest checkpoint, with its seed.")
    ] = False,
    max_restarts: Annotated[
        int,
        faults_option(
            "--max-restarts",
            help_="Restarts after accidents; none after an error of your code.",
            metavar="N",
            min=0,
        ),
    ] = 0,
    hang_timeout: Annotated[
        str | None,
        faults_option(
            "--hang-timeout",
            help_="Time without a step that ends the job; by default 20 steps, at least 60s.",
            metavar="DURATION",
        ),
    ] = None,
    allow_nan: Annotated[
        bool, faults_option("--allow-nan", help_="Train on where the loss is NaN or infinite.")
    ] = False,
    no_noise_scale: Annotated[
        bool, what_option("--no-noise-scale", help_="Do not measure the gradient noise scale.")
    ] = False,
    keep_best: Annotated[
        bool, faults_option("--keep-best", help_="Keep the weights of the best validation too.")
    ] = False,
    hosts: HostFile = None,
    all_hosts: Annotated[
        bool, hosts_option("--all-hosts", help_="Use every host, though fewer may be faster.")
    ] = False,
    keep_shares: Annotated[
        bool, hosts_option("--keep-shares", help_="Change no shares while training.")
    ] = False,
    wire: Annotated[
        str,
        hosts_option(
            "--wire",
            help_="Gradients between nodes: fp32, bf16, int8, or top1 (the largest 1 %).",
            metavar="FORMAT",
        ),
    ] = "fp32",
    all_reduce: Annotated[
        str,
        hosts_option(
            "--all-reduce",
            help_="How hosts sum gradients: ring, tree, or server (the first one sums).",
            metavar="WAY",
        ),
    ] = "ring",
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    onnx: Annotated[
        Path | None,
        output_option(
            "--onnx",
            help_="Export the trained model to this ONNX file.",
            parser=named,
            metavar="FILE",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        output_option(
            "--tensorboard",
            help_="Folder for TensorBoard's event files, one folder a run.",
            parser=named,
            metavar="PATH",
        ),
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", help_="Print the commands and start nothing.")
    ] = False,
    detach: Detach = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Train with the best stored plan of each node, through mpirun."""
    from launch.gradient_sync.algorithms import algorithm_names
    from launch.gradient_sync.wire_formats import wire_format_names
    from launch.job import CheckpointConfig
    from launch.noise_scale.efficiency import LR_SCALINGS
    from launch.use_cases import make_workload
    from planner.commands.launch import launch as launch_job
    from planner.jobs.making import LaunchRequest

    out = start_output("launch", as_json=json)
    if checkpoint_every is not None and checkpoint is None:
        raise UsageError(
            f"--checkpoint-every {checkpoint_every} and no --checkpoint: name a folder"
        )
    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    found.access.check_mpirun()
    check_data(data, found)
    request = LaunchRequest(
        workload=make_workload(
            use_case, settings=set or (), data=data, seed=seed, data_is_here=found.is_local
        ),
        epochs=epochs,
        plan_id=plan,
        global_batch=global_batch,
        wire=one_of("--wire", wire, wire_format_names()),
        all_reduce=one_of("--all-reduce", all_reduce, algorithm_names()),
        lr_scaling=None if lr_scaling is None else one_of("--lr-scaling", lr_scaling, LR_SCALINGS),
        measures_noise=not no_noise_scale,
        keep_shares=keep_shares,
        allow_stale=allow_stale,
        all_hosts=all_hosts,
        checkpoint=CheckpointConfig(
            folder=None if checkpoint is None else str(checkpoint),
            every_s=duration_s("--checkpoint-every", checkpoint_every or "10m"),
        ),
        resume=resume,
        allow_nan=allow_nan,
        keep_best=keep_best,
        onnx=onnx,
        tensorboard=tensorboard,
        max_restarts=max_restarts,
        hang_timeout_s=None if hang_timeout is None else duration_s("--hang-timeout", hang_timeout),
    )
    if detach:
        found.access.check_root()
        submit_command(context, JobKind.LAUNCH, db, out)
        return
    launch_job(request, found, db, out, dry_run=dry_run)


app.command(cls=GroupedCommand)(compare)


@app.command("use-cases", cls=GroupedCommand)
def use_cases(*, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Show the built-in use cases."""
    from launch.use_cases import use_case_summaries

    _show_summaries("use-cases", use_case_summaries(), as_json=json)


@app.command("strategies", cls=GroupedCommand)
def strategies_command(*, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Show the parallel strategies."""
    from launch.strategies import strategy_summaries

    _show_summaries("strategies", strategy_summaries(), as_json=json)


@app.command(cls=GroupedCommand)
def doctor(
    *,
    hosts: HostFile = None,
    use_case: Annotated[
        str | None,
        what_option("--use-case", help_="See that every host has this one.", metavar="NAME"),
    ] = None,
    data: DataFolder = None,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Check that this machine, or the hosts of a file, can do a job."""
    out = start_output("doctor", as_json=json)
    from launch.use_cases import make_workload

    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    check_data(data, found)
    if data is not None and use_case is None:
        raise UsageError(f"--data {data} and no --use-case: name what trains with them")
    workload = None
    if use_case is not None:
        workload = make_workload(use_case, data=data, data_is_here=found.is_local)
    if found.is_local and hosts is None:
        from planner.commands.doctor import check_machine

        check_machine(db, found.access, out)
        return
    from planner.commands.doctor_hosts import examine_hosts

    examine_hosts(found, db, out, workload=workload)


@app.command(cls=GroupedCommand)
def serve(
    *,
    host: Annotated[
        str, serve_option("--host", help_="Address to listen on.", metavar="ADDRESS")
    ] = "127.0.0.1",
    port: Annotated[
        int, serve_option("--port", help_="0 takes any that is free.", min=0, max=65535)
    ] = 0,
    allow_actions: Annotated[
        bool,
        serve_option("--allow-actions", help_="Let it start and end jobs; else it only shows."),
    ] = False,
    use_case: Annotated[
        list[str] | None,
        serve_option(
            "--use-case",
            help_="One that may be tuned and trained, beside the built-in ones; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    data: Annotated[
        Path | None, serve_option("--data", help_="Data of these use cases.", metavar="PATH")
    ] = None,
    hosts: Annotated[
        Path | None,
        serve_option(
            "--hosts", help_="Hosts that jobs may run on, beside this machine.", metavar="FILE"
        ),
    ] = None,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    token_file: Annotated[
        Path | None,
        serve_option(
            "--token-file",
            help_="Token for scripts and for signing in; made where it is missing.",
            parser=named,
            metavar="FILE",
        ),
    ] = None,
    public_url: Annotated[
        list[str] | None,
        serve_option(
            "--public-url",
            help_="Address of a proxy in front, as https://lab.example; may be repeated.",
            metavar="URL",
        ),
    ] = None,
    open_: Annotated[bool, serve_option("--open", help_="Open it in a browser.")] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show machines, searches, plans and trainings as pages, and as an API."""
    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    check_data(data, found)
    spellings = {name: checked_name(name) for name in use_case or ()}
    from planner.commands.serve import serve as serve_settings
    from planner.service.requests.settings import ServiceSettings

    settings = ServiceSettings(
        db=db,
        host=host,
        port=port,
        allow_actions=allow_actions,
        token_file=token_file,
        use_cases=tuple(dict.fromkeys(spellings.values())),
        spellings=spellings,
        data=data,
        hosts=hosts,
        ssh_config=ssh_config,
        mpirun=mpirun,
        allow_run_as_root=allow_run_as_root,
        public_urls=tuple(public_url or ()),
    )
    serve_settings(settings, start_output("serve", as_json=False), opens=open_)


app.command(cls=GroupedCommand)(report)


def _show_summaries(command: str, summaries: dict[str, str], *, as_json: bool) -> None:
    out = start_output(command, as_json=as_json)
    width = max(map(len, summaries))
    for name, summary in summaries.items():
        out.write_line(f"{name:<{width}}  {summary}")
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

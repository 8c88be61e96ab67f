"""What can be typed? The options of every command, read and handed on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.errors import UsageError
from planner.output import Output, start_output, variable_of
from planner.quantities import parse_duration_s

if TYPE_CHECKING:
    from launch.hosts.file import HostList
    from planner.store import Store

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
plans_app = typer.Typer(
    help="List, show, compare, export and import stored plans.",
    invoke_without_command=True,
    rich_markup_mode=None,
)
app.add_typer(plans_app, name="plans")


@app.callback()
@plans_app.callback()
def _show_help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def _duration_s(option: str, text: str) -> float:
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint=f"'{option}'") from error


def _option(*names: str, help_: str, **settings: Any) -> Any:
    """Make an option that is also read from ``DDLPLAN_<OPTION>``."""
    return typer.Option(
        *names, envvar=variable_of(names[0]), show_envvar=False, help=help_, **settings
    )


Database = Annotated[str, _option("--db", help_="Database: a path or sqlite:///path.")]
AsJson = Annotated[bool, _option("--json", help_="One JSON document on stdout.")]
AsCsv = Annotated[bool, _option("--csv", help_="CSV on stdout.")]
NeededCase = Annotated[
    str, _option("--use-case", help_="Built-in name, package.module:object or file.py:object.")
]
MaybeCase = Annotated[str | None, _option("--use-case", help_="Only of this use case.")]
MaybeNode = Annotated[str | None, _option("--node", help_="Only of this node.")]
DataFolder = Annotated[
    Path | None, _option("--data", help_="Folder of the data; built-in use cases draw their own.")
]
HostFile = Annotated[Path | None, _option("--hosts", help_="File of hosts, one a line.")]
SshConfig = Annotated[
    Path | None, _option("--ssh-config", help_="Read by ssh in place of ~/.ssh/config.")
]
Mpirun = Annotated[str | None, _option("--mpirun", help_="A site's own mpirun, by path or name.")]
AllowRoot = Annotated[
    bool, _option("--allow-run-as-root", help_="Let root start mpirun, as in a container.")
]
Seed = Annotated[
    int,
    # The sampler of the search takes no more bits.
    _option("--seed", help_="Of weights, order of samples, search.", min=0, max=2**32 - 1),
]
PlanId = Annotated[int, typer.Argument(metavar="ID", help="Number of a plan.")]
DEFAULT_DATABASE = "planner.db"


@app.command()
def probe(
    *,
    hosts: HostFile = None,
    quick: Annotated[bool, _option("--quick", help_="Below 2 s: measure nothing.")] = False,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Find out what this machine, or each host, is and how fast it can be at best."""
    out = start_output("probe", as_json=json)
    listed = _other_machines(hosts, out)
    if listed is None:
        from planner.commands.probe import probe_here

        probe_here(db, out, quick=quick)
        return
    from planner.commands.probe_hosts import probe_hosts
    from planner.reach import Reach

    reach = Reach(ssh_config=ssh_config, mpirun=mpirun, allow_root=allow_run_as_root)
    probe_hosts(listed, reach, db, out, quick=quick)


@app.command()
def tune(
    *,
    use_case: NeededCase,
    data: DataFolder = None,
    hosts: HostFile = None,
    budget: Annotated[
        str, _option("--budget", help_="Time to search: 90, 90s, 5m, 1h.", metavar="DURATION")
    ] = "5m",
    trials: Annotated[
        int | None, _option("--trials", help_="Search at most so many plans.", min=0)
    ] = None,
    seed: Seed = 0,
    batch_size: Annotated[
        int | None, _option("--batch-size", help_="The only node batch to try.", min=1)
    ] = None,
    max_batch: Annotated[
        int | None, _option("--max-batch", help_="The largest node batch to try.", min=1)
    ] = None,
    precision: Annotated[
        str, _option("--precision", help_="fp32 keeps the numerics; bf16; auto: either.")
    ] = "fp32",
    no_cache: Annotated[
        bool, _option("--no-cache", help_="Decode the files in every epoch, keep no pictures.")
    ] = False,
    strategies: Annotated[str | None, _option("--strategies", help_="Only these: a,b,...")] = None,
    epochs: Annotated[
        int,
        _option(
            "--epochs", help_="Of the training to come; compiling is charged over them.", min=1
        ),
    ] = 10,
    fresh: Annotated[bool, _option("--fresh", help_="Leave earlier trials aside.")] = False,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Search for the fastest way to train a use case on this machine, or on each host."""
    from launch.use_cases import check_spec, normalise_spec

    out = start_output("tune", as_json=json)
    listed = _other_machines(hosts, out)
    check_spec(use_case)
    if batch_size is not None and max_batch is not None:
        raise typer.BadParameter("--batch-size and --max-batch exclude each other: give one")
    checked: dict[str, Any] = {
        "use_case": normalise_spec(use_case),
        "data": _existing(data),
        "budget_s": _duration_s("--budget", budget),
        "precision": _one_of("--precision", precision, ("fp32", "bf16", "auto")),
        "strategies": _strategies(strategies),
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
    if listed is None or hosts is None:
        from planner.commands.tune import tune_here

        tune_here(request, db, out)
        return
    from planner.commands.tune_hosts import tune_hosts
    from planner.reach import Reach

    reach = Reach(ssh_config=ssh_config, mpirun=mpirun, allow_root=allow_run_as_root)
    tune_hosts(request, listed, hosts, reach, db, out)


@app.command()
def launch(
    *,
    use_case: NeededCase,
    data: DataFolder = None,
    hosts: HostFile = None,
    epochs: Annotated[int, _option("--epochs", help_="Times through the data.", min=1)] = 1,
    plan: Annotated[int | None, _option("--plan", help_="Number of a stored plan.")] = None,
    global_batch: Annotated[
        int | None, _option("--global-batch", help_="Samples per step over all nodes.", min=1)
    ] = None,
    all_hosts: Annotated[
        bool, _option("--all-hosts", help_="Use every host, though fewer may be faster.")
    ] = False,
    seed: Seed = 0,
    checkpoint: Annotated[
        Path | None, _option("--checkpoint", help_="Folder to keep the training in.")
    ] = None,
    checkpoint_every: Annotated[
        str,
        _option("--checkpoint-every", help_="How often: 90, 90s, 10m, 1h.", metavar="DURATION"),
    ] = "10m",
    resume: Annotated[
        bool, _option("--resume", help_="Go on from the newest checkpoint, with its seed.")
    ] = False,
    max_restarts: Annotated[
        int,
        _option("--max-restarts", help_="Go on so often after an accident, not an error.", min=0),
    ] = 0,
    hang_timeout: Annotated[
        str | None,
        _option(
            "--hang-timeout",
            help_="Time without a step that ends the job; by default 20 steps, at least 60s.",
            metavar="DURATION",
        ),
    ] = None,
    dry_run: Annotated[
        bool, _option("--dry-run", help_="Print the commands and start nothing.")
    ] = False,
    wire: Annotated[
        str, _option("--wire", help_="Gradients between nodes: fp32, or rounded to bf16.")
    ] = "fp32",
    keep_shares: Annotated[
        bool, _option("--keep-shares", help_="Change no shares while training.")
    ] = False,
    allow_stale: Annotated[
        bool, _option("--allow-stale", help_="Use a plan of other hardware or software.")
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
    from planner.reach import Reach

    out = start_output("launch", as_json=json)
    check_spec(use_case)
    request = LaunchRequest(
        use_case=normalise_spec(use_case),
        data=_existing(data),
        hosts=hosts,
        epochs=epochs,
        plan_id=plan,
        global_batch=global_batch,
        seed=seed,
        wire=_one_of("--wire", wire, ("fp32", "bf16")),
        keep_shares=keep_shares,
        allow_stale=allow_stale,
        all_hosts=all_hosts,
        checkpoint=checkpoint,
        checkpoint_every_s=_duration_s("--checkpoint-every", checkpoint_every),
        resumes=resume,
        max_restarts=max_restarts,
        hang_limit_s=None if hang_timeout is None else _duration_s("--hang-timeout", hang_timeout),
        reach=Reach(ssh_config=ssh_config, mpirun=mpirun, allow_root=allow_run_as_root),
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
    _one_format(json=json, csv=csv)
    show_trials(_reading(db), out, _case(use_case), node, as_csv=csv)


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
        str | None, _option("--use-case", help_="See that every host has this one.")
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
    if hosts is None:
        from planner.commands.doctor import examine

        examine(db, out)
        return
    from launch.mpi.settings import MpiSettings
    from planner.commands.doctor_hosts import DoctorRequest, examine_hosts

    request = DoctorRequest(
        hosts=hosts,
        use_case=_checked_case(use_case),
        data=_existing(data),
        ssh_config=ssh_config,
        mpi=MpiSettings(mpirun=mpirun, allow_root=allow_run_as_root),
    )
    examine_hosts(request, db, out)


@plans_app.command("list")
def plans_list(
    *,
    use_case: MaybeCase = None,
    node: MaybeNode = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show the stored plans."""
    from planner.commands.plans import list_plans

    out = start_output("plans list", as_json=json)
    _one_format(json=json, csv=csv)
    list_plans(_reading(db), out, _case(use_case), node, as_csv=csv)


@plans_app.command("show")
def plans_show(plan_id: PlanId, *, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Show one plan with its evidence."""
    from planner.commands.plans import show_plan

    show_plan(_reading(db), start_output("plans show", as_json=json), plan_id)


@plans_app.command("best")
def plans_best(
    *,
    use_case: NeededCase,
    node: MaybeNode = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Show the plan that launch would use."""
    from planner.commands.plans import show_best

    out = start_output("plans best", as_json=json)
    show_best(_reading(db), out, _case(use_case) or use_case, node)


@plans_app.command("compare")
def plans_compare(
    first: PlanId,
    second: PlanId,
    *,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Compare two plans."""
    from planner.commands.plans import compare

    compare(_reading(db), start_output("plans compare", as_json=json), first, second)


@plans_app.command("export")
def plans_export(plan_id: PlanId, *, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Write a plan as JSON, with the commands that need no ddlplan."""
    from planner.commands.plans import export

    export(_reading(db), start_output("plans export", as_json=json), plan_id)


@plans_app.command("import")
def plans_import(
    file: Annotated[Path, typer.Argument(help="What plans export wrote.")],
    *,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
) -> None:
    """Store a plan from a file."""
    from planner.commands.plans import import_plan

    import_plan(db, start_output("plans import", as_json=json), file)


@plans_app.command("rm")
def plans_rm(plan_id: PlanId, *, db: Database = DEFAULT_DATABASE, json: AsJson = False) -> None:
    """Forget a plan; its trials stay."""
    from planner.commands.plans import remove

    remove(_reading(db), start_output("plans rm", as_json=json), plan_id)


def _reading(db: str) -> Callable[[], Store]:
    """Give what opens a database that must be there already."""

    def open_() -> Store:
        from planner.store import Store

        return Store.open(db, create=False)

    return open_


def _case(use_case: str | None) -> str | None:
    from launch.use_cases import normalise_spec

    return None if use_case is None else normalise_spec(use_case)


def _checked_case(use_case: str | None) -> str | None:
    from launch.use_cases import check_spec

    if use_case is not None:
        check_spec(use_case)
    return _case(use_case)


def _existing(data: Path | None) -> str | None:
    if data is not None and not data.exists():
        raise typer.BadParameter(f"--data {data}: no such file or folder")
    return None if data is None else str(data.absolute())


def _one_of(option: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise typer.BadParameter(f"{option} {value!r}: choose one of {', '.join(choices)}")
    return value


def _strategies(text: str | None) -> tuple[str, ...]:
    from launch.strategies import load_strategy, strategy_names

    if text is None:
        return tuple(strategy_names())
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise typer.BadParameter(f"--strategies {text!r}: name at least one")
    for name in names:
        load_strategy(name)
    return names


def _other_machines(hosts: Path | None, out: Output) -> HostList | None:
    """Give the hosts of a file, ``None`` where this machine alone is meant."""
    from launch.hosts.file import is_this_machine, read_host_file

    if hosts is None:
        return None
    listed = read_host_file(hosts)
    if len(listed.hosts) > 1 or not is_this_machine(listed.hosts[0]):
        return listed
    for note in listed.notes:
        out.warn(note)
    return None


def _one_format(*, json: bool, csv: bool) -> None:
    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other: give one")


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

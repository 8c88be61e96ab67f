"""Command line: the commands with their options."""

from __future__ import annotations

from copy import copy
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer

from planner.cli.compare import compare
from planner.cli.db import db_app
from planner.cli.grouped_help import GroupedCommand, GroupedGroup, names_subcommand, show_help
from planner.cli.jobs import jobs_app
from planner.cli.launch import launch
from planner.cli.options import (
    DEFAULT_DATABASE,
    AllowRoot,
    AsJson,
    CaseSettings,
    Database,
    DataFolder,
    HostFile,
    Mpirun,
    NoWait,
    SshConfig,
    named,
    option,
    serve_option,
    what_option,
)
from planner.cli.plans import plans_app
from planner.cli.report import report
from planner.cli.runs import runs_app
from planner.cli.scripts import ScriptCommand
from planner.cli.sweeps import sweep_app
from planner.cli.trials import trials_app
from planner.cli.tune import tune
from planner.cli.values import check_data, checked_name, find_hosts
from planner.cli.weights import weights_app
from planner.errors import UsageError
from planner.report.output import start_output

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer does not export it

app = typer.Typer(
    name="ddlplan",
    help="Measure how to train a model fastest on each of your machines, then train it so.",
    epilog="Every option can be given as a variable DDLPLAN_<OPTION> too; the option goes before.",
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(plans_app, name="plans")
app.add_typer(trials_app, name="trials")
app.add_typer(sweep_app, name="sweep")
app.add_typer(runs_app, name="runs")
app.add_typer(weights_app, name="weights")
app.add_typer(jobs_app, name="jobs")
app.add_typer(db_app, name="db")

use_cases_app = typer.Typer(cls=GroupedGroup, invoke_without_command=True, rich_markup_mode=None)
app.add_typer(use_cases_app, name="use-cases")


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
    show_help(context)


@app.command(cls=GroupedCommand)
def probe(
    *,
    hosts: HostFile = None,
    quick: Annotated[
        bool, option("--quick", help_="Show cores, memory and GPUs; measure nothing.")
    ] = False,
    data: Annotated[
        Path | None,
        what_option(
            "--data",
            help_="Also measure how fast the files here are read.",
            parser=named,
            metavar="PATH",
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
        found.access.require_mpirun()
    from planner.commands.probe import show_probe

    show_probe(found, db, out, quick=quick, data=data, waits=not no_wait)


app.command(cls=ScriptCommand)(tune)
app.command(cls=ScriptCommand)(launch)
app.command(cls=GroupedCommand)(compare)


@app.command(cls=GroupedCommand)
def init(
    script: Annotated[
        Path,
        typer.Argument(metavar="SCRIPT", help="Training script. It is read, never executed."),
    ],
    *,
    output: Annotated[
        Path | None,
        option(
            "--output",
            help_="File to write; by default beside the script: train_case.py for train.py.",
            parser=named,
            metavar="FILE",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Write a use case from a training script, and mark what is left to do."""
    out = start_output("init", as_json=json)
    from planner.commands.use_cases.init import write_draft

    write_draft(script, output, out)


@use_cases_app.callback()
def use_cases(
    context: typer.Context, *, db: Database = DEFAULT_DATABASE, json: AsJson = False
) -> None:
    """Show the built-in use cases, or try one on a batch."""
    if names_subcommand(context):
        return
    from launch.use_cases import use_case_summaries

    _show_summaries("use-cases", use_case_summaries(), as_json=json)


@use_cases_app.command("check", cls=GroupedCommand)
def use_cases_check(
    use_case: Annotated[
        str,
        typer.Argument(metavar="SPEC", help="Use case, as for --use-case: case.py:Case."),
    ],
    *,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    json: AsJson = False,
) -> None:
    """Try a use case on a batch: what it gives, which strategies can run it, and why not others."""
    out = start_output("use-cases check", as_json=json)
    from launch.use_cases import make_workload

    check_data(data, None, use_case)
    workload = make_workload(use_case, settings=set or (), data=data)
    from planner.commands.use_cases.check import check

    check(workload, out)


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
        what_option("--use-case", help_="Check that every host has it too.", metavar="NAME"),
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
    check_data(data, found, use_case)
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
        int, serve_option("--port", help_="Port to listen on; 0: a free one.", min=0, max=65535)
    ] = 0,
    allow_actions: Annotated[
        bool,
        serve_option("--allow-actions", help_="Start and end jobs too, not only show them."),
    ] = False,
    use_case: Annotated[
        list[str] | None,
        serve_option(
            "--use-case",
            help_="Use case that jobs may train beside the built-in ones; may be repeated.",
            metavar="NAME",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        serve_option("--data", help_="Data of these use cases.", parser=named, metavar="PATH"),
    ] = None,
    hosts: Annotated[
        Path | None,
        serve_option(
            "--hosts",
            help_="Hosts that jobs may run on, beside this machine.",
            parser=named,
            metavar="FILE",
        ),
    ] = None,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    token_file: Annotated[
        Path | None,
        serve_option(
            "--token-file",
            help_="File with the token for scripts and for signing in; made where it is missing.",
            parser=named,
            metavar="FILE",
        ),
    ] = None,
    public_url: Annotated[
        list[str] | None,
        serve_option(
            "--public-url",
            help_="Address of a proxy in front, such as https://lab.example; may be repeated.",
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
    commands = _make_commands(arguments[0] if arguments else "")
    try:
        return commands(args=arguments, prog_name="ddlplan", standalone_mode=False) or 0
    except typer.Abort as ended:
        raise KeyboardInterrupt from ended
    except _UsageError as error:
        raise UsageError(_explain_usage(error)) from error


@cache
def _make_commands(name: str) -> Any:
    """Make commands out of their signatures: all of them only where none has that name.

    Making all takes longer than many a command does.
    """
    one = copy(app)
    one.registered_commands = [
        command
        for command in app.registered_commands
        if command.callback is not None and name == (command.name or command.callback.__name__)
    ]
    one.registered_groups = [group for group in app.registered_groups if name == group.name]
    is_one = one.registered_commands or one.registered_groups
    return typer.main.get_command(one if is_one else app)


def _explain_usage(error: Exception) -> str:
    message = " ".join(error.format_message().split())  # type: ignore[attr-defined]
    context = getattr(error, "ctx", None)
    if isinstance(error, typer.BadParameter) or context is None:
        return message
    return f"{message.rstrip('.')}: see {context.command_path} --help"

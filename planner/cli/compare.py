"""Command line of ``ddlplan compare``."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from planner.cli.options import (
    DEFAULT_DATABASE,
    AllowRoot,
    AllowStale,
    AsCsv,
    AsJson,
    CaseSettings,
    Database,
    DataFolder,
    HostFile,
    Html,
    MaybePlan,
    Mpirun,
    NoWait,
    Seed,
    SshConfig,
    option,
    what_option,
)
from planner.cli.values import (
    check_data,
    duration_s,
    find_case,
    find_hosts,
    names_of,
    one_of,
    start_table,
)

_BOTH = "both"
_USUAL_CASE = "simplebig"
_peer_option = partial(option, group="Peers")
_turns_option = partial(option, group="Turns")


def compare(
    *,
    use_case: Annotated[
        str | None,
        what_option(
            "--use-case",
            help_="Use case, as for launch; by default that of --plan, else simplebig.",
            metavar="NAME",
        ),
    ] = None,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    seed: Seed = 0,
    batch_size: Annotated[
        int | None,
        what_option(
            "--batch-size",
            help_="Samples of a step on each host; by default the plan's.",
            metavar="N",
            min=1,
        ),
    ] = None,
    with_: Annotated[
        str | None,
        _peer_option(
            "--with", help_="Peers to compare with: plain,ddp,...; by default all.", metavar="NAMES"
        ),
    ] = None,
    settings: Annotated[
        str,
        _peer_option(
            "--settings",
            help_="Peers have defaults, ours (threads, processes, memory format), or both in turn.",
            metavar="SETTINGS",
        ),
    ] = _BOTH,
    loader_workers: Annotated[
        int,
        _peer_option(
            "--loader-workers",
            help_="Data-loading processes of each process of a peer.",
            metavar="N",
            min=0,
        ),
    ] = 0,
    budget: Annotated[
        str,
        _turns_option(
            "--budget", help_="Time to take turns with each peer, per start.", metavar="DURATION"
        ),
    ] = "60s",
    turn: Annotated[
        str, _turns_option("--turn", help_="Shortest turn.", metavar="DURATION")
    ] = "2s",
    starts: Annotated[
        int, _turns_option("--starts", help_="Start everything N times.", metavar="N", min=1)
    ] = 2,
    start_limit: Annotated[
        str,
        _turns_option(
            "--start-limit", help_="Time in which a peer must begin to train.", metavar="DURATION"
        ),
    ] = "180s",
    step_limit: Annotated[
        str,
        _turns_option(
            "--step-limit", help_="Time in which a peer must make a step.", metavar="DURATION"
        ),
    ] = "120s",
    plan: MaybePlan = None,
    allow_stale: AllowStale = False,
    hosts: HostFile = None,
    ssh_config: SshConfig = None,
    mpirun: Mpirun = None,
    allow_run_as_root: AllowRoot = False,
    no_wait: NoWait = False,
    html: Html = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Compare a plan with other ways to train, in turns: peers such as DDP, Lightning or Ray."""
    from launch.use_cases import make_workload
    from planner.peer_runs.request import CompareRequest, Setting
    from planner.peers import load_peer, peer_names

    out = start_table("compare", json=json, csv=csv)
    found = find_hosts(hosts, ssh_config, mpirun, allow_root=allow_run_as_root)
    found.access.require_mpirun(also_in_slurm=True)
    use_case, data = find_case(use_case, data, plan, db)
    use_case = use_case or _USUAL_CASE
    check_data(data, found, use_case)
    choices = (*map(str, Setting), _BOTH)
    wanted = one_of("--settings", settings, choices)
    request = CompareRequest(
        workload=make_workload(
            use_case, settings=set or (), data=data, seed=seed, data_is_here=found.is_local
        ),
        peers=tuple(peer_names()) if with_ is None else names_of("--with", with_, load_peer),
        settings=tuple(Setting) if wanted == _BOTH else (Setting(wanted),),
        batch_size=batch_size,
        plan_id=plan,
        allow_stale=allow_stale,
        loader_workers=loader_workers,
        starts=starts,
        budget_s=duration_s("--budget", budget),
        turn_s=duration_s("--turn", turn),
        start_limit_s=duration_s("--start-limit", start_limit),
        step_limit_s=duration_s("--step-limit", step_limit),
    )
    from planner.commands.peers.compare import show_comparison

    show_comparison(request, found, db, out, waits=not no_wait, html=html)

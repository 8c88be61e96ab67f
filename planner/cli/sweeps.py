"""Command line of ``ddlplan sweep``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.grouped_help import GroupedCommand, GroupedGroup, names_subcommand
from planner.cli.jobs import Detach, submit_command
from planner.cli.options import (
    DEFAULT_DATABASE,
    MOST_EPOCHS,
    AsCsv,
    AsJson,
    CaseSettings,
    Database,
    DataFolder,
    Html,
    MaybeCase,
    MaybeTuned,
    NoWait,
    Seed,
    plan_option,
    search_option,
    what_option,
)
from planner.cli.values import check_data, counts_named, find_case, listed_name, start_table
from planner.errors import UsageError
from planner.records.job_record import JobKind
from planner.report.output import start_output

sweep_app = typer.Typer(cls=GroupedGroup, invoke_without_command=True, rich_markup_mode=None)

SweepId = Annotated[int, typer.Argument(metavar="ID", help="Number of a sweep.")]


@sweep_app.callback()
def sweep(
    context: typer.Context,
    *,
    use_case: MaybeTuned = None,
    set: CaseSettings = None,  # noqa: A002 - the name of the option
    data: DataFolder = None,
    seed: Seed = 0,
    epochs: Annotated[
        int,
        what_option(
            "--epochs", help_="Epochs of each training.", metavar="N", min=1, max=MOST_EPOCHS
        ),
    ] = 1,
    batches: Annotated[
        str | None,
        search_option(
            "--batches", help_="Samples of a step: 32,64,128,... (needed)", metavar="N,..."
        ),
    ] = None,
    devices: Annotated[
        str | None,
        plan_option(
            "--devices",
            help_="Numbers of GPUs, else of workers; if no --plans, 1,2,4,... and all, "
            "as far as the smallest batch has samples.",
            metavar="N,...",
        ),
    ] = None,
    plans: Annotated[
        str | None,
        plan_option(
            "--plans", help_="Stored plans: best, or numbers: 3,7,...", metavar="best|ID,..."
        ),
    ] = None,
    allow_stale: Annotated[
        bool, plan_option("--allow-stale", help_="Use plans of other hardware or software.")
    ] = False,
    fresh: Annotated[
        bool, search_option("--fresh", help_="Ignore stored results of the same sweep.")
    ] = False,
    no_wait: NoWait = False,
    html: Html = None,
    detach: Detach = False,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Train with several batches on several numbers of devices; show speed and accuracy of each."""
    if names_subcommand(context):
        return
    from launch.use_cases import make_workload
    from planner.sweeps.sweep_request import BEST, SweepRequest

    out = start_table("sweep", json=json, csv=csv)
    named: tuple[int, ...] | str = ()
    if plans is not None:
        is_best = plans.strip() == BEST
        named = BEST if is_best else counts_named("--plans", plans, word=BEST)
    if isinstance(named, tuple) and named:
        use_case, data = _find_case(use_case, data, named, db)
    if use_case is None or batches is None:
        missing = "--use-case" if use_case is None else "--batches"
        raise UsageError(f"Missing option '{missing}': see ddlplan sweep --help")
    check_data(data, None, use_case)
    request = SweepRequest(
        workload=make_workload(use_case, settings=set or (), data=data, seed=seed),
        batches=counts_named("--batches", batches),
        devices=() if devices is None else counts_named("--devices", devices),
        plans=named,
        epochs=epochs,
        fresh=fresh,
        allow_stale=allow_stale,
    )
    if allow_stale and plans is None:
        out.warn("--allow-stale and no --plans: no stored plan is used, so nothing changes by it")
    if detach:
        submit_command(context, JobKind.SWEEP, db, out)
        return
    from planner.commands.sweep import run_sweep

    run_sweep(request, db, out, html=html, waits=not no_wait)


def _find_case(
    use_case: str | None, data: Path | None, plans: Sequence[int], db: str
) -> tuple[str | None, Path | None]:
    """Give the use case and the data that were named, else those of the plans that were.

    Raises:
        UsageError: One of them leads to no use case, see `find_case`; or they were found with
            different data. That one is for another use case, the sweep says.
    """
    first, *others = plans
    found = find_case(use_case, data, first, db)
    for other in others if use_case is None else ():
        its_case, its_data = find_case(None, data, other, db)
        if its_case == found[0] and its_data != found[1]:
            known = [place or "no data that were named" for place in (found[1], its_data)]
            raise UsageError(
                f"plan {first} was found with {known[0]}, and plan {other} with {known[1]}: "
                "say with --use-case and --data what to train"
            )
    return found


@sweep_app.command("list", cls=GroupedCommand)
def sweep_list(
    *, use_case: MaybeCase = None, db: Database = DEFAULT_DATABASE, json: AsJson = False
) -> None:
    """Show the sweeps, the newest first."""
    from planner.commands.sweep import list_sweeps

    out = start_output("sweep list", as_json=json)
    list_sweeps(db, out, listed_name(use_case))


@sweep_app.command("show", cls=GroupedCommand)
def sweep_show(
    sweep_id: SweepId,
    *,
    html: Html = None,
    db: Database = DEFAULT_DATABASE,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Show one sweep: its points, with intervals, and what they show."""
    from planner.commands.sweep import show_sweep

    out = start_table("sweep show", json=json, csv=csv)
    show_sweep(db, out, sweep_id, html=html)

"""The command ``ddlplan launch --hosts FILE -- torchrun ...``."""

from __future__ import annotations

from collections.abc import Sequence

from planner.api.scripts.launching_hosts import (
    HostScript,
    PreparedHosts,
    launch_on_hosts,
    open_hosts,
    samples_per_s,
)
from planner.commands.scripts.launch import tell_plan, tell_training, warn_of_changes
from planner.jobs.hosts import Hosts
from planner.quantities import format_duration
from planner.records.job_record import JobKind
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.plan_line import describe_plan
from planner.report.table import WithCommand
from planner.scripts.naming import shell_line
from planner.supervision.own_job import recorded_job


def launch(
    command: Sequence[str],
    hosts: Hosts,
    db: str,
    out: Output,
    *,
    allow_stale: bool,
    dry_run: bool,
) -> None:
    """Run a torchrun script on several hosts with their stored plans, or show what would start."""
    display = LiveDisplay(out)  # not on screen: the terminal is the script's
    with open_hosts(command, hosts, db=db, allow_stale=allow_stale, listener=display) as prepared:
        if dry_run:
            for one in prepared.hosts:
                _describe(one, out)
            out.write_fact("bound", _bound(prepared))
            out.finish(_plain(prepared))
            return
        with recorded_job(db, JobKind.LAUNCH) as job:
            for one in prepared.hosts:
                out.note(f"{one.host}: {tell_plan(one.stored, one.reasons)}")
            warn_of_changes(prepared.hosts[0].stored.plan, out)
            listener = tell_training(job, display)
            run = launch_on_hosts(prepared, db=db, listener=listener, keeps_stdout=out.as_json)
    rate = samples_per_s(prepared, run)
    measured = "not measured: its steps were not seen" if rate is None else f"measured {rate:.1f}"
    out.note(f"done in {format_duration(run.elapsed_s)}; {_bound(prepared)}, {measured}")
    out.finish(
        {
            **_plain(prepared),
            "elapsed_s": run.elapsed_s,
            "throughput_samples_per_s": rate,
            "training": run.training_id,
        }
    )


def _bound(prepared: PreparedHosts) -> str:
    return f"at most {prepared.bound_samples_per_s:.1f} samples/s by the plans, without the network"


def _describe(one: HostScript, out: Output) -> None:
    """Show the command line of a host, with the variables before it."""
    out.write_fact("host", one.host)
    out.write_fact("plan", f"{one.stored.id}: {describe_plan(one.stored.plan)}")
    out.write_fact("cores", ",".join(map(str, one.ready.cores)))
    out.write_fact("command", WithCommand("", shell_line(one.ready.environment, one.command)))


def _plain(prepared: PreparedHosts) -> dict[str, object]:
    """Give what runs under the names that scripts rely on."""
    return {
        "hosts": [
            {
                "host": one.host,
                "plan": one.stored.to_json(stale=bool(one.reasons)),
                "command": list(one.command),
                "environment": dict(one.ready.environment),
                "cores": list(one.ready.cores),
            }
            for one in prepared.hosts
        ],
        "bound_samples_per_s": prepared.bound_samples_per_s,
    }

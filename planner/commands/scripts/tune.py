"""The command ``ddlplan tune -- ...``."""

from __future__ import annotations

from launch.scripts.environment import patches_of
from planner.api.scripts.tuning import TunedScript, tune_script
from planner.commands.tune import show_here
from planner.jobs.hosts import Hosts
from planner.jobs.suggested_command import suggest_command
from planner.records.job_record import JobKind
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.supervision.own_job import recorded_job
from planner.supervision.search_listener import SearchListener
from planner.tuning.tune_request import TuneRequest


def tune(
    script: TunedScript, request: TuneRequest, db: str, out: Output, *, waits: bool = True
) -> None:
    """Search for the best plan of a script on this machine, and show what was found."""
    here = Hosts.this_machine()
    with recorded_job(db, JobKind.TUNE) as job:
        with LiveDisplay(out, here.names) as display:
            listener = SearchListener(job, display, budget_s=request.budget_s)
            result = tune_script(script, request, db=db, listener=listener, waits=waits)
        tuned = result.tuned
        job.report(plan_id=tuned.plan.id)
        then = suggest_command(
            "launch", request.workload, db=db, plan_id=tuned.launch_plan_id, hosts=here
        )
        show_here(tuned, then, out, steps=result.steps)
        if changes := patches_of(tuned.plan.plan):
            out.warn(
                f"this plan changes the script itself ({', '.join(changes)}): what is launched is "
                "no longer yours as it is"
            )
        if tuned.interrupted:
            raise KeyboardInterrupt

"""The command ``ddlplan tune -- ...``."""

from __future__ import annotations

from launch.plan import Plan
from launch.scripts.environment import patches_of
from launch.scripts.program import Program
from planner.api.scripts.tuning import TunedScript, tune_script
from planner.commands.tune import show_here
from planner.jobs.hosts import Hosts
from planner.jobs.suggested_command import suggest_command
from planner.records.job_record import JobKind
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.scripts.plans import foreign_values
from planner.supervision.own_job import recorded_job
from planner.supervision.search_listener import SearchListener
from planner.tuning.tune_request import TuneRequest


def tune(script: TunedScript, request: TuneRequest, db: str, out: Output, *, waits: bool) -> None:
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
        for warning in patch_warnings(script.program, tuned.plan.plan):
            out.warn(warning)
        show_here(tuned, then, out, steps=result.steps)
        if tuned.interrupted:
            raise KeyboardInterrupt


def patch_warnings(program: Program, plan: Plan) -> list[str]:
    """Say what a plan changes in the script itself, and where nobody knows what that does."""
    if not (changes := patches_of(plan)):
        return []
    warnings = [
        f"this plan changes the script itself ({', '.join(changes)}): what is launched is "
        "no longer yours as it is"
    ]
    if foreign := foreign_values(program, plan):
        values = ", ".join(f"{name}={value}" for name, value in foreign.items())
        warnings.append(
            f"whether it learns the same with {', '.join(changes)} and {values} is not known: "
            "losses are compared at the values of your own command alone"
        )
    return warnings

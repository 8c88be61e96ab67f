"""What does `ddlplan launch` do? It finds the plan, runs the job, and says how it went."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.job import Job
from launch.run_directory import RunDirectory
from launch.workers.reports import EpochDone, Report, Warned
from planner.commands.dry_run import describe_job, job_lines
from planner.commands.next_step import next_command
from planner.errors import NoDatabaseError, NoPlanError
from planner.job_making import LaunchRequest, check_root, find_hosts, find_plan, make_job
from planner.output import Output
from planner.report.live import TrainingBar
from planner.report.plan_line import describe_plan
from planner.running import LaunchOutcome, run_job
from planner.software import current_software
from planner.store import Store
from planner.stored_plan import stale_reasons
from probes.node import probe

_RUNS = Path("runs")
_NOTABLE_PERCENT = 10


def launch_here(request: LaunchRequest, db: str, out: Output, *, dry_run: bool) -> None:
    """Train with a stored plan and say how it went."""
    hosts = find_hosts(request, os.environ)
    for note in hosts.notes:
        out.warn(note)
    node, software = probe(quick=True), current_software()
    remedy = next_command("tune", request.use_case, data=request.data, db=db)
    try:
        with Store.open(db, create=False) as store:
            stored = find_plan(store, request, node, software, remedy=remedy)
    except NoDatabaseError as error:
        raise NoPlanError(f"no plan for {request.use_case} in {db}: run {remedy}") from error
    job = make_job(request, stored, hosts, RunDirectory.next_of(_RUNS).path)
    if dry_run:
        described = describe_job(job, node, os.environ, allow_root=request.allow_root)
        for line in job_lines(job, described, plan_id=stored.id):
            out.say(line)
        out.finish(described)
        return
    allow_root = check_root(request)
    used = replace(stored, plan=job.nodes[0].plan)
    reasons = stale_reasons(used, fingerprint=node.fingerprint(), software=software)
    remark = f" (stale, {', '.join(reasons)})" if reasons else ""
    out.note(f"plan {used.id}{remark}: {describe_plan(used.plan)}")
    outcome = _train(job, out, allow_root=allow_root)
    # Evidence of a plan that the user has changed says nothing of this job.
    expected = stored.throughput_samples_per_s.median if used == stored else None
    _say_trained(outcome, expected, out)
    plan = used.to_json(stale=bool(reasons))
    out.finish({"plan": plan, **_outcome_json(outcome, expected)})


def _train(job: Job, out: Output, *, allow_root: bool) -> LaunchOutcome:
    with TrainingBar(out.errors, job.epochs) as bar:
        bar.wait("starting mpirun and PyTorch")

        def on_report(report: Report) -> None:
            bar(report)
            if isinstance(report, Warned):
                out.warn(report.message)
            if isinstance(report, EpochDone):
                out.say(_epoch_line(report, job.epochs))

        return run_job(job, _RUNS, allow_root=allow_root, on_report=on_report)


def _epoch_line(epoch: EpochDone, epochs: int) -> str:
    parts = [f"epoch {epoch.epoch}/{epochs}", f"loss {epoch.train_loss:.3f}"]
    if epoch.validation_loss is not None:
        parts.append(f"validation loss {epoch.validation_loss:.3f}")
    parts += [f"{name} {value:.3f}" for name, value in epoch.metrics.items()]
    parts.append(f"{epoch.throughput_samples_per_s:.1f} samples/s")
    return "  ".join(parts)


def _say_trained(outcome: LaunchOutcome, expected: float | None, out: Output) -> None:
    lost = [epoch.epoch for epoch in outcome.epochs if not math.isfinite(epoch.train_loss)]
    if lost:
        out.warn(
            f"the training loss of epoch {lost[0]} is no number (NaN or infinite): lower the "
            "learning rate in the use case's optimizer, or look for such values in its data"
        )
    if expected is not None:
        _say_speed(expected, outcome, out)
    out.say(f"weights    {_relative(outcome.weights)}")
    out.say(f"metrics    {_relative(outcome.run_directory / 'metrics.jsonl')}, logs beside it")


def _say_speed(expected: float, outcome: LaunchOutcome, out: Output) -> None:
    """Hold the job against the evidence of its plan, in samples per second."""
    last = outcome.epochs[-1].throughput_samples_per_s
    off = 100 * (last / expected - 1)
    out.say(f"expected   {expected:.1f} samples/s, measured {last:.1f} ({off:+.1f} %)")
    if off < -_NOTABLE_PERCENT:
        out.warn(
            f"training was {-off:.0f} % slower than the plan's trials: another process may be "
            "using the cores; if it always is, tune again"
        )


def _outcome_json(outcome: LaunchOutcome, expected: float | None) -> dict[str, Any]:
    return {
        "run_directory": str(outcome.run_directory),
        "weights": None if outcome.weights is None else str(outcome.weights),
        "epochs": [epoch.to_json() for epoch in outcome.epochs],
        "expected_throughput_samples_per_s": expected,
    }


def _relative(path: Path | None) -> str:
    if path is None:
        return "none were saved"
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)

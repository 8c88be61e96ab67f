"""The command ``ddlplan launch``."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.errors import ExportError
from launch.reports import OnnxFailed, OnnxSaved, Report
from planner.api.launching import LaunchResult, prepare_launch
from planner.api.launching import launch as launch_request
from planner.commands.dry_run import describe_job, job_lines
from planner.commands.signals import cancel_on_signals
from planner.commands.training import TrainingDisplay, outcome_json, print_training
from planner.input_cost.lines import input_json, input_lines
from planner.jobs.hosts import Hosts
from planner.jobs.launch_request import LaunchRequest
from planner.jobs.prepared_launch import PreparedLaunch
from planner.jobs.suggested_command import suggest_command
from planner.plans.stored_plan import iso_utc
from planner.records.job_record import JobKind
from planner.report.live import LiveDisplay
from planner.report.node_choice import (
    SHARE_COLUMNS,
    SUBSET_COLUMNS,
    choice_json,
    choice_lines,
    share_rows,
    subset_rows,
)
from planner.report.output import Output
from planner.report.plan_line import describe_plan
from planner.report.table import WithCommand
from planner.supervision.own_job import recorded_job
from planner.supervision.training_listener import TrainingListener
from planner.trainings.recorder import TrainingRecorded
from probes.storage.file_system import find_file_system


def launch(request: LaunchRequest, hosts: Hosts, db: str, out: Output, *, dry_run: bool) -> None:
    """Train with stored plans, or show what would be started."""
    probes = suggest_command("probe", db=db, hosts=hosts)
    with cancel_on_signals(out.warn) as cancellation:
        if dry_run:
            with LiveDisplay(out, hosts.names) as display:
                prepared = prepare_launch(
                    request, db=db, hosts=hosts, listener=display, cancellation=cancellation
                )
            _show_dry_run(prepared, probes, out)
            return
        with recorded_job(db, JobKind.LAUNCH) as job:
            with TrainingDisplay(out, hosts.names, epochs=request.epochs) as display:

                def show(report: Report, host: str | None = None, /) -> None:
                    display(report, host)
                    match report:
                        case PreparedLaunch():
                            job.report(plan_id=report.plans[0].stored.id)
                            _show_plans(report, probes, out, to_stdout=False)
                        case TrainingRecorded():
                            job.report(training_id=report.training_id)

                result = launch_request(
                    request,
                    db=db,
                    hosts=hosts,
                    listener=TrainingListener(job, show, epochs=request.epochs),
                    cancellation=cancellation,
                )
            _show_result(result, probes, out)


def _show_plans(prepared: PreparedLaunch, probes: str, out: Output, *, to_stdout: bool) -> None:
    """Show what each host would do, and why these hosts.

    It is the answer of a dry run; of a training it is what comes before the answer.
    """
    choice = prepared.choice
    for line in _describe_input(prepared):
        out.note(line)
    if choice is None:
        (plan,) = prepared.plans
        remark = f" (stale, {', '.join(plan.reasons)})" if plan.reasons else ""
        if not to_stdout:
            used = describe_plan(prepared.job.nodes[0].plan)
            out.note(f"plan {plan.stored.id}{remark}: {used}")
        return
    for plan in prepared.plans:
        if plan.reasons:
            out.warn(f"plan {plan.stored.id} on {plan.host} is stale, {', '.join(plan.reasons)}")
    write_line = out.write_line if to_stdout else out.note
    write_table = out.write_table if to_stdout else out.note_table
    write_table(share_rows(prepared.plans, choice), SHARE_COLUMNS)
    if len(choice.predictions) > 1:
        write_line("")
        write_table(subset_rows(choice), SUBSET_COLUMNS)
    write_line("")
    for line in choice_lines(choice, probes):
        write_line(line)


def _describe_input(prepared: PreparedLaunch) -> Iterator[str]:
    """Say what reading the data takes, or how to find out where it may take much."""
    data, is_one = prepared.job.workload.data, len(prepared.plans) == 1
    for plan in prepared.plans:
        if plan.input is not None:
            host = None if is_one else plan.host
            yield from input_lines(plan.input, prepared.job.epochs, host)
    if data is not None and all(plan.input is None for plan in prepared.plans):
        system = find_file_system(Path(data))
        if system.is_network:
            yield (
                f"data are on {system.kind}: ddlplan probe --data {shlex.quote(data)} measures "
                "how fast they are read, and launch then predicts epochs and says whether to copy "
                "them"
            )


def _show_dry_run(prepared: PreparedLaunch, probes: str, out: Output) -> None:
    _show_plans(prepared, probes, out, to_stdout=True)
    job, plans = prepared.job, {plan.host: plan for plan in prepared.plans}
    nodes = [plans[part.host].node for part in job.nodes]
    described = describe_job(job, nodes, os.environ, prepared.placement)
    if prepared.choice is not None:
        out.write_line("")
    out.write_line(WithCommand("", shlex.join(described["command"])))
    for line in job_lines(job, described, [plans[part.host].stored.id for part in job.nodes]):
        out.write_line(line)
    choice = prepared.choice
    described |= {"input": _plans_json(prepared)["input"]}
    out.finish(described if choice is None else {**described, "verdict": choice_json(choice)})


def _show_result(result: LaunchResult, probes: str, out: Output) -> None:
    prepared, expected = result.prepared, result.prepared.expected_samples_per_s
    if prepared.choice is None:
        remedy = (
            "the plan's trials: another process may be using the cores; if it always is, tune again"
        )
        interval = prepared.plans[0].stored.throughput_samples_per_s
        print_training(result, expected, out, verb="expected", remedy=remedy, interval=interval)
    else:
        measured = result.outcome.throughput_samples_per_s
        if expected is None and measured is not None:
            most = prepared.predicted_samples_per_s
            out.write_fact("predicted", f"at most {most:.1f} samples/s, measured {measured:.1f}")
        remedy = f"predicted: a host or a link may be busy; {probes} measures the links anew"
        print_training(result, expected, out, verb="predicted", remedy=remedy)
    document = {**_plans_json(prepared), **outcome_json(result, expected)}
    if prepared.job.onnx is not None and not isinstance(result.outcome.onnx, OnnxSaved):
        out.set_partial_data(document)
        raise ExportError(_explain_missing_onnx(result))
    out.finish(document)


def _explain_missing_onnx(result: LaunchResult) -> str:
    """Say why there is no ONNX file, and how to make it of the weights that there are."""
    failed, outcome = result.outcome.onnx, result.outcome
    why, then = "it was interrupted", "run"
    if isinstance(failed, OnnxFailed):
        why, then = failed.message, "mend that, then run"
    host = result.prepared.host
    remedy = f"ddlplan weights export --onnx FILE {shlex.quote(str(outcome.run_directory))}"
    where = "" if host is None else f" on {host}"
    return f"the training is done, and its model was not exported ({why}): {then} {remedy}{where}"


def _plans_json(prepared: PreparedLaunch) -> dict[str, Any]:
    links = prepared.links
    costs = {
        plan.host: None if plan.input is None else input_json(plan.input) for plan in prepared.plans
    }
    if prepared.choice is None:
        (plan,) = prepared.plans
        used = replace(plan.stored, plan=prepared.job.nodes[0].plan)
        return {"plan": used.to_json(stale=bool(plan.reasons)), "input": costs[plan.host]}
    return {
        "input": costs,
        "plans": [
            {"host": plan.host, **plan.stored.to_json(stale=bool(plan.reasons))}
            for plan in prepared.plans
        ],
        "verdict": choice_json(prepared.choice),
        "network_measured_at": None if links is None else iso_utc(links.measured_at),
    }

"""The command ``ddlplan tune``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from launch.plan import Plan
from launch.scripts.program import BATCH
from planner.api.tuning import NodeTuneResult, TuneResult
from planner.api.tuning import tune as tune_request
from planner.jobs.hosts import Hosts
from planner.jobs.suggested_command import suggest_command
from planner.plans.stored_plan import ComparedPlan, StoredPlan
from planner.quantities import format_count, format_duration, interval_json, with_ends
from planner.records.job_record import JobKind
from planner.report.live import LiveDisplay
from planner.report.nodes import PLAN_COLUMNS, failure_json, links_json, plan_row, write_network
from planner.report.output import Output
from planner.report.plan_line import describe_plan
from planner.report.plans import GENERATED, doubt, doubts, objective_facts
from planner.report.table import Row, WithCommand
from planner.scripts.naming import STRATEGY as SCRIPT
from planner.supervision.own_job import recorded_job
from planner.supervision.search_listener import SearchListener
from planner.trials.result import Outcome, TrialResult
from planner.tuning.conclusion import TuneOutcome
from planner.tuning.tune_request import TuneRequest

_TOLD_APART = 0.1
"""Time before the search / that of the search, from which on a person is told of both."""


def tune(request: TuneRequest, hosts: Hosts, db: str, out: Output, *, waits: bool) -> None:
    """Search on this machine or on several hosts, and show what was found."""
    with recorded_job(db, JobKind.TUNE) as job:
        with LiveDisplay(out, hosts.names) as display:
            listener = SearchListener(job, display, budget_s=request.budget_s)
            result = tune_request(request, db=db, hosts=hosts, listener=listener, waits=waits)
        job.report(plan_id=result.plan.id)
        _show(result, request, hosts, db, out)
        if result.interrupted:
            raise KeyboardInterrupt


def _show(result: TuneResult, request: TuneRequest, hosts: Hosts, db: str, out: Output) -> None:
    where = Hosts.this_machine() if hosts.is_local else hosts
    then = suggest_command(
        "launch", request.workload, db=db, plan_id=result.launch_plan_id, hosts=where
    )
    if hosts.is_local:
        show_here(result, then, out)
    else:
        if result.links is None and not result.interrupted:
            measures = suggest_command("probe", db=db, hosts=hosts)
            out.warn(f"the network was not measured: {measures} does it")
        show_hosts(result, then, out)


def show_here(result: TuneResult, then: str, out: Output, *, steps: str | None = None) -> None:
    """Show what was found on one machine; of a script, also how its steps were recognised."""
    (node,) = result.nodes
    assert node.outcome is not None
    for warning in node.outcome.warnings:
        out.warn(warning)
    _print_plan(node.outcome, then, result, out, steps)
    document = _outcome_json(node.outcome, result, node.pixel_bytes)
    out.finish(document if steps is None else {**document, "steps": steps})


def show_hosts(result: TuneResult, then: str, out: Output) -> None:
    """Show what was found on several hosts, and what to type then."""
    for node in result.nodes:
        for warning in () if node.outcome is None else node.outcome.warnings:
            out.warn(f"{node.host}: {warning}")
    out.write_table([_row(node) for node in result.nodes], PLAN_COLUMNS)
    write_network(result.links, out)
    out.write_line("")
    if any(node.outcome and node.outcome.plan.is_generated for node in result.nodes):
        out.write_fact("data", GENERATED)
    of_hosts: dict[tuple[str, str], list[str]] = {}
    for node in result.nodes:
        outcome = node.outcome
        for fact in () if outcome is None else (*_not_raced(outcome), *_larger_batch(outcome)):
            of_hosts.setdefault(fact, []).append(node.host)
    for (name, text), names in of_hosts.items():
        out.write_fact(name, f"{', '.join(names)}: {text}")
    out.write_fact("time", format_duration(result.elapsed_s))
    out.write_fact("next", WithCommand("", then))
    if result.interrupted:
        out.note("stopped early: the same command goes on from here")
    out.finish(
        {
            "nodes": [_node_json(node, result) for node in result.nodes],
            "network": links_json(result.links),
            "elapsed_s": result.elapsed_s,
            "interrupted": result.interrupted,
        }
    )


def _row(node: NodeTuneResult) -> Row:
    remark = node.failure.message if node.failure else ""
    if (outcome := node.outcome) is None:
        return plan_row(node.host, None, 0, remark)
    remark = "; ".join(filter(None, (doubts(outcome.plan, outcome.trials), remark)))
    return plan_row(node.host, outcome.plan, len(outcome.trials), remark)


def _node_json(node: NodeTuneResult, result: TuneResult) -> dict[str, Any]:
    head = {"host": node.host, "error": failure_json(node.failure)}
    if node.outcome is None:
        return head
    return head | _outcome_json(node.outcome, result, node.pixel_bytes)


def _print_plan(
    outcome: TuneOutcome, then: str, result: TuneResult, out: Output, steps: str | None
) -> None:
    stored = outcome.plan
    out.write_fact("best plan", _describe_rate(stored, outcome.trials))
    if steps is not None:
        out.write_fact("steps", steps)
    if stored.is_generated:
        out.write_fact("data", GENERATED)
    for compared in stored.comparisons:
        said = describe_comparison(compared, stored.plan) + doubt(compared.speedup, outcome.trials)
        out.write_fact(_LABELS[compared.name], said)
    for name, text in _not_raced(outcome):
        out.write_fact(name, text)
    if (lost := outcome.lost_in_turns) > 0:
        plans = format_count(lost, "plan")
        out.write_fact("others", f"{plans} that looked faster in a line above lost in turns")
    for name, value in objective_facts(stored):
        out.write_fact(name, value)
    for name, text in _larger_batch(outcome):
        out.write_fact(name, text)
    if outcome.compile_s is not None:
        charged = f"charged over {format_count(outcome.epochs, 'epoch')}"
        out.write_fact(
            "compiling", f"{outcome.compile_s:.1f} s once, {charged} where plans were compared"
        )
    if outcome.exact is not None:
        out.write_fact("in fp32", _describe_rate(outcome.exact, outcome.trials))
    counts = Counter(trial.outcome for trial in outcome.trials)
    parts = [f"{counts[kind]} {kind.words}" for kind in Outcome if counts[kind]]
    out.write_fact("trials", f"{len(outcome.trials)}: {', '.join(parts)}")
    out.write_fact("time", _describe_time(result, outcome.stepping_s))
    out.write_fact("stored", WithCommand(f"plan {stored.id}; next: ", then))
    if outcome.interrupted:
        out.note("stopped early: the same command goes on from here")


def _describe_rate(stored: StoredPlan, trials: Sequence[TrialResult]) -> str:
    """Name a plan with its rate, how sure that is, and what it is."""
    rate = stored.throughput_samples_per_s
    interval = f"{rate.low:.1f} to {rate.high:.1f}"
    plan, unsure = describe_plan(stored.plan), doubt(rate, trials)
    return f"{rate.median:.1f} samples/s ({interval}): {plan}{unsure}"


def _not_raced(outcome: TuneOutcome) -> Iterator[tuple[str, str]]:
    """Say what the best plan was not raced against, and why."""
    if outcome.one_core_unknown is not None:
        yield _LABELS["one_core"], f"not measured: {outcome.one_core_unknown}"
    if outcome.own_batch_unknown is not None:
        yield _LABELS["own_batch"], f"not known: {outcome.own_batch_unknown}"


def _larger_batch(outcome: TuneOutcome) -> Iterator[tuple[str, str]]:
    """Say what a batch above the use case's own changes, and how to keep that."""
    plan, own = outcome.plan.plan, outcome.default_batch
    if plan.node_batch > own:
        keeps = f"--batch-size {own}"
        if outcome.defaults is not None and plan.strategy == SCRIPT:
            keeps = keep_batch_options(plan, outcome.defaults.plan)
        changes = "fewer, larger steps, which changes what is learned"
        yield "batch", f"{plan.node_batch} in place of {own}: {changes}; {keeps} keeps it"
        yield from _separate_gains(outcome)


def _separate_gains(outcome: TuneOutcome) -> Iterator[tuple[str, str]]:
    """Say what the settings gain and what the batch does, where both are known."""
    larger = [one.speedup for one in outcome.plan.comparisons if one.name == "own_batch"]
    settings = outcome.settings_gain
    if not larger or settings is None:
        return
    gains = (settings, larger[0])
    by_settings, by_batch = (with_ends(one.median, one.low, one.high) for one in gains)
    unsure = doubt(max(gains, key=lambda one: one.high / one.low), outcome.trials)
    yield "gains", f"settings {by_settings} times, larger batch {by_batch} times{unsure}"


def _describe_time(result: TuneResult, stepping_s: float) -> str:
    """Say how long a search took, and which part of that went into training steps."""
    took, before_s = format_duration(result.elapsed_s), result.before_search_s or 0.0
    search_s = result.elapsed_s - before_s
    if before_s > _TOLD_APART * search_s:
        share = 100 * stepping_s / search_s
        before = f"{format_duration(before_s)} before the search"
        return f"{took}, {before}, {share:.0f} % of the rest in training steps"
    return f"{took}, {100 * stepping_s / result.elapsed_s:.0f} % of it in training steps"


def keep_batch_options(plan: Plan, own: Plan) -> str:
    """Give the options of a search in which steps of a script have the user's own samples.

    Args:
        plan: Plan whose steps have another number of samples: of its ``{batch}``, or of its
            processes with one each.
        own: The script as it is.
    """
    batch, own_batch = (int(each.options.get(BATCH, 1)) for each in (plan, own))
    options = [f"--batch-size {own_batch}"] if batch != own_batch else []
    if plan.node_batch * own_batch != own.node_batch * batch:
        options.append(f"--choices processes={own.processes}")
    return " ".join(options)


_LABELS = {
    "defaults": "defaults",
    "one_core": "one core",
    "own_batch": "own batch",
    "runner_up": "next best",
}
"""Of plans that the best one was raced against, as in docs/plans.md."""


def describe_comparison(compared: ComparedPlan, best: Plan) -> str:
    """Say how many times as fast as another plan the best one is, where it is another."""
    if compared.plan == best:
        return "the best plan itself: nothing faster was found"
    gain, what = compared.speedup, describe_plan(compared.plan)
    times = f"{gain.median:.2f} times ({gain.low:.2f} to {gain.high:.2f})"
    rate = f"{compared.throughput_samples_per_s:.1f}/s"
    return f"{times} as fast: {rate}, {what}"


def _outcome_json(
    outcome: TuneOutcome, result: TuneResult, pixel_bytes: int | None
) -> dict[str, Any]:
    """Give the outcome of a search under the names that scripts rely on."""
    counts = Counter(trial.outcome for trial in outcome.trials)
    return {
        "plan": outcome.plan.to_json(stale=False),
        "fp32": None if outcome.exact is None else outcome.exact.to_json(stale=False),
        "own_batch_unknown": outcome.own_batch_unknown,
        "one_core_unknown": outcome.one_core_unknown,
        "settings_gain": interval_json(outcome.settings_gain),
        "compile_s": outcome.compile_s,
        "epochs": outcome.epochs,
        "pixel_bytes": pixel_bytes,
        "trials": {str(kind): counts[kind] for kind in Outcome},
        "new_trials": outcome.new_trials,
        "elapsed_s": result.elapsed_s,
        "before_search_s": result.before_search_s,
        "stepping_share": outcome.stepping_s / result.elapsed_s,
        "interrupted": outcome.interrupted,
    }

"""What does `ddlplan tune` do? It asks the use case, searches, and says what was found."""

from __future__ import annotations

import time
from typing import Any

from launch.workers.fork_servers import ForkServers
from planner.commands.next_step import next_command
from planner.conclusion import TuneOutcome, conclude
from planner.findings import Findings
from planner.output import Output
from planner.preparation import prepare
from planner.quantities import format_duration
from planner.report.live import DataBar, TuneLines
from planner.report.plan_line import describe_plan
from planner.result import Outcome
from planner.software import current_software
from planner.store import Store
from planner.stored_plan import StoredPlan
from planner.trial import TrialRunner
from planner.tune import Tuner
from planner.tune_request import TuneRequest
from probes.hardware import Hardware
from probes.node import probe


def tune_here(request: TuneRequest, db: str, out: Output) -> None:
    """Search on this machine and say what was found."""
    started = time.monotonic()
    Store.check_place(db)  # before anything is drawn or timed that could not be kept
    software = current_software()
    node = probe(quick=True)
    with ForkServers() as servers:
        runner = TrialRunner(request.use_case, request.data, node, servers, seed=request.seed)
        with DataBar(out.errors) as bar:
            bar.wait("loading PyTorch and the use case")
            prepared = prepare(request, node, runner, on_progress=bar, warn=out.warn, note=out.note)
        # Only now: a use case or a folder that is no good leaves no database behind.
        with Store.open(db) as store:
            node = known_node(store, node, out)
            findings = Findings(request, prepared.facts, node, software, store)
            with TuneLines(out.errors) as display:
                tuner = Tuner(findings, runner.run, display, checked_s=prepared.checked_s)
                interrupted = tuner.search()
            outcome = conclude(findings, store, interrupted=interrupted)
            named = _find_name(store, outcome.plan)
    elapsed_s = time.monotonic() - started
    for warning in outcome.warnings:
        out.warn(warning)
    then = next_command("launch", request.use_case, data=request.data, db=db, plan_id=named)
    _say_tuned(outcome, then, elapsed_s, out)
    out.finish(tuned_json(outcome, elapsed_s, prepared.pixel_bytes))
    if outcome.interrupted:
        raise KeyboardInterrupt


def known_node(store: Store, node: Hardware, out: Output) -> Hardware:
    """Give this machine's stored probe; measure it where there is none.

    Args:
        store: Where probes are kept.
        node: Quick probe of this machine.
        out: Is told what is going on.
    """
    if stored := store.latest_probe(node.fingerprint(), node=node.node):
        return stored
    out.note(f"probing {node.node}, which has no stored probe")
    measured = probe()
    store.save_probe(measured)
    return measured


def _find_name(store: Store, found: StoredPlan) -> int | None:
    """Give the number that launch must be told to use a plan, ``None`` where it needs none."""
    chosen = store.best_plan(
        found.use_case, software=found.software, fingerprint=found.fingerprint, node=found.node
    )
    return None if chosen is not None and chosen.id == found.id else found.id


def _say_tuned(outcome: TuneOutcome, then: str, elapsed_s: float, out: Output) -> None:
    stored = outcome.plan
    rate = stored.throughput_samples_per_s
    if stored.baseline is not None:
        known = f"{stored.baseline.throughput_samples_per_s:.1f} samples/s"
        out.say(f"baseline   {known}: sequential batch {stored.baseline.node_batch}")
    interval = f"{rate.low:.1f} to {rate.high:.1f}"
    out.say(f"best plan  {rate.median:.1f} samples/s ({interval}): {describe_plan(stored.plan)}")
    if outcome.compile_s is not None:
        charged = f"charged over {outcome.epochs} epochs"
        out.say(f"compiling  {outcome.compile_s:.1f} s once, {charged} where plans were compared")
    if outcome.exact is not None:
        rate = outcome.exact.throughput_samples_per_s
        interval = f"{rate.low:.1f} to {rate.high:.1f}"
        exact = describe_plan(outcome.exact.plan)
        out.say(f"in fp32    {rate.median:.1f} samples/s ({interval}): {exact}")
    if stored.speedup is not None:
        gain = stored.speedup
        out.say(f"speedup    {gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f}, 95 % interval)")
    counts = [
        f"{number} {str(kind).replace('_', ' ')}"
        for kind in Outcome
        if (number := sum(1 for result in outcome.trials if result.outcome is kind))
    ]
    share = 100 * outcome.stepping_s / elapsed_s
    out.say(f"trials     {len(outcome.trials)}: {', '.join(counts)}")
    out.say(f"time       {format_duration(elapsed_s)}, {share:.0f} % of it in training steps")
    out.say(f"stored     plan {stored.id}; next: {then}")
    if outcome.interrupted:
        out.note("stopped early: the same command goes on from here")


def tuned_json(outcome: TuneOutcome, elapsed_s: float, pixel_bytes: int | None) -> dict[str, Any]:
    """Give what a search found under the names that scripts rely on."""
    return {
        "plan": outcome.plan.to_json(stale=False),
        "fp32": None if outcome.exact is None else outcome.exact.to_json(stale=False),
        "compile_s": outcome.compile_s,
        "epochs": outcome.epochs,
        "pixel_bytes": pixel_bytes,
        "trials": {
            str(kind): sum(1 for result in outcome.trials if result.outcome is kind)
            for kind in Outcome
        },
        "new_trials": outcome.new_trials,
        "elapsed_s": elapsed_s,
        "stepping_share": outcome.stepping_s / elapsed_s,
        "interrupted": outcome.interrupted,
    }

"""How do probe, search, store and job come together when a command is given?"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any

from launch.mpi import mpirun_command
from launch.reports import EpochDone, Report, Warned
from launch.task import Purpose, Task, worker_tasks
from planner.describe_plan import describe_plan
from planner.display import DataBar, TrainingBar, TuneLines
from planner.launching import (
    LaunchOutcome,
    LaunchRequest,
    check_root,
    find_hosts,
    find_plan,
    make_job,
    run_job,
)
from planner.output import Output
from planner.quantities import format_duration
from planner.result import Outcome
from planner.software import current_software
from planner.store import Store
from planner.stored_plan import StoredPlan
from planner.trial import TrialRunner
from planner.tune import TuneOutcome, Tuner, TuneRequest
from probes.hardware import Hardware
from probes.node import probe

_RUNS = Path("runs")


def tune_here(request: TuneRequest, db: str, out: Output) -> None:
    """Search on this machine and say what was found."""
    software = current_software()
    node = probe(quick=True)
    with TrialRunner(request.use_case, request.data, node, seed=request.seed) as runner:
        with DataBar(out.errors) as bar:
            facts = runner.describe(on_progress=bar, on_warning=out.warn)
        # Only now: a use case or a folder that is no good leaves no database behind.
        with Store.open(db) as store:
            node = known_node(store, node, out)
            with TuneLines(out.errors) as display:
                tuner = Tuner(request, facts, node, software, store, runner.run, display)
                outcome = tuner.tune()
    for warning in outcome.warnings:
        out.warn(warning)
    _say_tuned(request, outcome, out)
    out.finish(_tuned_json(outcome))
    if outcome.interrupted:
        raise KeyboardInterrupt


def launch_here(request: LaunchRequest, db: str, out: Output, *, dry_run: bool) -> None:
    """Train with a stored plan and say how it went."""
    hosts = find_hosts(request, os.environ)
    for note in hosts.notes:
        out.warn(note)
    node = probe(quick=True)
    with Store.open(db, create=False) as store:
        stored = find_plan(store, request, node, current_software())
    job = make_job(request, stored, hosts, _RUNS.resolve() / "NEXT")
    if dry_run:
        _say_dry_run(request, stored, job_json := _dry_run(request, stored, node, out), out)
        out.finish(job_json)
        return
    allow_root = check_root(request)
    out.note(f"plan {stored.id}: {describe_plan(job.nodes[0].plan)}")

    with TrainingBar(out.errors, request.epochs) as bar:

        def on_report(report: Report) -> None:
            bar(report)
            if isinstance(report, Warned):
                out.warn(report.message)
            if isinstance(report, EpochDone):
                out.say(_epoch_line(report, request.epochs))

        outcome = run_job(job, _RUNS, allow_root=allow_root, on_report=on_report)
    _say_launched(stored, outcome, out)
    out.finish(_launched_json(stored, outcome))


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


def _say_tuned(request: TuneRequest, outcome: TuneOutcome, out: Output) -> None:
    stored = outcome.plan
    rate = stored.throughput_samples_per_s
    case = request.use_case
    if stored.baseline is not None:
        known = f"{stored.baseline.throughput_samples_per_s:.1f} samples/s"
        out.say(f"baseline   {known}: sequential batch {stored.baseline.node_batch}")
    interval = f"{rate.low:.1f} to {rate.high:.1f}"
    out.say(f"best plan  {rate.median:.1f} samples/s ({interval}): {describe_plan(stored.plan)}")
    if stored.speedup is not None:
        gain = stored.speedup
        out.say(f"speedup    {gain.median:.2f} ({gain.low:.2f} to {gain.high:.2f}, 95 % interval)")
    counts = [
        f"{number} {str(kind).replace('_', ' ')}"
        for kind in Outcome
        if (number := sum(1 for result in outcome.trials if result.outcome is kind))
    ]
    share = outcome.stepping_share
    spent = "" if share is None else f", {100 * share:.0f} % of it in training steps"
    out.say(f"trials     {len(outcome.trials)}: {', '.join(counts)}")
    out.say(f"time       {format_duration(outcome.elapsed_s)}{spent}")
    data = f" --data {shlex.quote(request.data)}" if request.data else ""
    out.say(
        f"stored     plan {stored.id}; next: ddlplan launch --use-case {shlex.quote(case)}{data}"
    )
    if outcome.interrupted:
        out.note("stopped early: the same command goes on from here")


def _tuned_json(outcome: TuneOutcome) -> dict[str, Any]:
    return {
        "plan": outcome.plan.to_json(stale=False),
        "trials": {
            str(kind): sum(1 for result in outcome.trials if result.outcome is kind)
            for kind in Outcome
        },
        "new_trials": outcome.new_trials,
        "elapsed_s": outcome.elapsed_s,
        "stepping_share": outcome.stepping_share,
        "interrupted": outcome.interrupted,
    }


def _epoch_line(epoch: EpochDone, epochs: int) -> str:
    parts = [f"epoch {epoch.epoch}/{epochs}", f"loss {epoch.train_loss:.3f}"]
    if epoch.validation_loss is not None:
        parts.append(f"validation loss {epoch.validation_loss:.3f}")
    parts += [f"{name} {value:.3f}" for name, value in epoch.metrics.items()]
    parts.append(f"{epoch.throughput_samples_per_s:.1f} samples/s")
    return "  ".join(parts)


def _say_launched(stored: StoredPlan, outcome: LaunchOutcome, out: Output) -> None:
    expected = stored.throughput_samples_per_s.median
    last = outcome.epochs[-1].throughput_samples_per_s
    off = 100 * (last / expected - 1)
    out.say(f"expected   {expected:.1f} samples/s, measured {last:.1f} ({off:+.1f} %)")
    out.say(f"weights    {_relative(outcome.weights)}")
    out.say(f"also there {_relative(outcome.run_directory)}/metrics.jsonl and the workers' logs")


def _launched_json(stored: StoredPlan, outcome: LaunchOutcome) -> dict[str, Any]:
    return {
        "plan": stored.to_json(stale=False),
        "run_directory": str(outcome.run_directory),
        "weights": None if outcome.weights is None else str(outcome.weights),
        "epochs": [
            {name: getattr(epoch, name) for name in EpochDone.__slots__} for epoch in outcome.epochs
        ],
        "expected_throughput_samples_per_s": stored.throughput_samples_per_s.median,
    }


def _relative(path: Path | None) -> str:
    if path is None:
        return "none were saved"
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _dry_run(
    request: LaunchRequest, stored: StoredPlan, node: Hardware, out: Output
) -> dict[str, Any]:
    hosts = find_hosts(request, os.environ)
    job = make_job(request, stored, hosts, _RUNS / "NEXT")
    plan = job.nodes[0].plan
    task = Task(purpose=Purpose.TRAIN, use_case=job.use_case, data=job.data, plan=plan)
    command = mpirun_command(job, _RUNS / "NEXT" / "job.json", allow_root=request.allow_root)
    workers = [
        {
            "worker": worker.local_rank,
            "cores": list(worker.cores),
            "device": plan.devices[min(worker.local_rank, len(plan.devices) - 1)],
            "threads": plan.threads_per_process,
        }
        for worker in worker_tasks(task, node.cpu.core_ids)
    ]
    return {
        "command": command,
        "nodes": [
            {"host": n.host, "plan": n.plan.to_json(), "workers": workers} for n in job.nodes
        ],
        "environment": {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    }


def _say_dry_run(
    request: LaunchRequest, stored: StoredPlan, described: dict[str, Any], out: Output
) -> None:
    out.say(shlex.join(described["command"]))
    for node in described["nodes"]:
        out.say(f"{node['host']}: plan {stored.id}, {describe_plan(stored.plan)}")
        for worker in node["workers"]:
            cores = ",".join(map(str, worker["cores"]))
            out.say(
                f"  worker {worker['worker']}: cores {cores}, device {worker['device']}, "
                f"{worker['threads']} threads"
            )
    settings = " ".join(f"{key}={value}" for key, value in described["environment"].items())
    out.say(f"workers' environment: {settings}, and nothing of MPI's")
    out.say("nothing was started: leave --dry-run out to train")

"""Rate of a plan that waits for its input, as trials record it and as a launch trains it.

Each sample takes 4 ms to come. A plan with loader processes begins a trial with a queue that they
filled during its first step: what lies in it must not count. The plan has its turns alone, as many
as in the final of a search; then it is launched. Of a launch counts the second epoch.
"""

from __future__ import annotations

import json

from _block import CASES, Ddlplan, Output, Result, alternate, begin, make_parser, run_bench
from _cases import SAMPLE_S
from _launches import Launches
from _races import alone, make_runner, race_final

from launch.plan import Plan
from launch.workers.fork_server_pool import ForkServerPool
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, utc_now
from probes.hardware import Hardware
from probes.node import probe
from probes.timing import Interval, paired_ratio

_CASE = f"{CASES}:SlowSamples"
_BATCH, _EPOCH_S = 32, 15.0
_ROUNDS = 8
"""Turns of each start."""


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__, blocks=(2, "of four runs each"))
    parser.add_argument("--workers", default="0,1,2,4,8", help="loader processes (0,1,2,4,8)")
    arguments, out = begin(parser)
    node, results = probe(quick=True), []
    for workers in map(int, arguments.workers.split(",")):
        results.append(_compare(workers, node, arguments.blocks, out))
        out.show(results[-1:])
    return out.conclude(results)


def _compare(workers: int, node: Hardware, blocks: int, out: Output) -> Result:
    """Record and launch in turns."""
    plan = Plan(strategy="sequential", node_batch=_BATCH, loader_workers=workers)
    with Ddlplan.in_own_folder() as ddlplan, ForkServerPool() as servers:
        expected = max(1, workers) / SAMPLE_S
        steps = max(2, round(_EPOCH_S * expected / _BATCH))
        (ddlplan.folder / "samples").write_text(str(steps * _BATCH))
        with alone(out):
            runner = make_runner(_CASE, ddlplan.folder, node, servers)
        launches = Launches(ddlplan, _CASE, ddlplan.folder)
        file = ddlplan.folder / "plan.json"
        file.write_text(json.dumps(_stored(plan, node, expected).to_json(stale=False)))
        plan_id = int(launches.import_plan(file, "fp32")["id"])

        def record() -> float:
            with alone(out):
                cores = node.cpu.usable_cores
                (raced,) = race_final(runner.start, [plan], rounds=_ROUNDS, cores=cores)
            rate = raced.throughput_samples_per_s()
            assert rate is not None
            out.say(f"{workers} loader processes: recorded {rate.median:7.1f} samples/s")
            return rate.median

        def launch() -> float:
            rate = launches.launch(plan_id, epochs=2).samples_per_s
            out.say(f"{workers} loader processes: launched {rate:7.1f} samples/s")
            return rate

        pairs = alternate(record, launch, blocks=blocks)
    return Result(
        f"{workers} loader processes, recorded / launched rate",
        paired_ratio(pairs),
        low=0.95,
        high=1.05,
    )


def _stored(plan: Plan, node: Hardware, rate: float) -> StoredPlan:
    """Give a plan as it is stored, with a rate that nothing here is held against."""
    return StoredPlan(
        use_case=_CASE,
        node=node.node,
        fingerprint=node.fingerprint(),
        plan=plan,
        throughput_samples_per_s=Interval(median=rate, low=rate, high=rate, count=1),
        speedup=None,
        baseline=None,
        peak_memory_bytes=None,
        created_at=utc_now(),
        software=current_software(),
    )


if __name__ == "__main__":
    run_bench(main)

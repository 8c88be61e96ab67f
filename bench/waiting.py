"""Speed of a plan by how its OpenMP threads wait between parallel parts of a step.

``active`` spins, ``passive`` sleeps, and by default a thread spins for a while. One plan is raced
with itself under all three. Above 1: faster than default.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from _block import Output, Result, make_parser, positive, run_bench
from _burner import burning
from _races import alone, make_runner, race_final, read_plan

from launch.process_environment.openmp import WAIT_POLICIES, WAIT_POLICY
from launch.workers.fork_server_pool import ForkServerPool
from planner.trials.comparison import compare_results
from probes.node import probe


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--use-case", default="simplebig", help="what to train (simplebig)")
    parser.add_argument("--data", type=Path, help="its data")
    parser.add_argument("--batch", type=positive, default=32, help="of the plan (32)")
    parser.add_argument("--plan", type=Path, help="race what `plans export` wrote here")
    parser.add_argument(
        "--burn", action="store_true", help="beside a process that burns half a core"
    )
    parser.add_argument("--rounds", type=positive, default=15, help="turns of each start (15)")
    parser.add_argument("--starts", type=positive, default=3, help="of each (3)")
    arguments = parser.parse_args()
    out = Output("waiting", as_json=arguments.json)
    out.introduce()
    node = probe(quick=True)
    plan = read_plan(arguments.plan, node, arguments.batch)
    plans = [replace(plan, options={**plan.options, WAIT_POLICY: one}) for one in WAIT_POLICIES]
    with alone(out), ForkServerPool() as servers:
        runner = make_runner(arguments.use_case, arguments.data, node, servers)
        with burning() if arguments.burn else nullcontext():
            default, *others = race_final(
                runner.start,
                plans,
                rounds=arguments.rounds,
                starts=arguments.starts,
                cores=node.cpu.usable_cores,
            )
    results = []
    for policy, other in zip(WAIT_POLICIES[1:], others, strict=True):
        ratio = compare_results(default, other)
        assert ratio is not None
        figure = f"{plan.strategy} {plan.processes}x{plan.threads_per_process}, waits {policy}"
        results.append(Result(figure, ratio))
    return out.conclude(results)


if __name__ == "__main__":
    run_bench(main)

"""Speed of a plan by how its OpenMP threads wait between parallel parts of a step.

``active`` spins, ``passive`` sleeps, and by default a thread spins for a while. One plan is raced
with itself under all three. Above 1: faster than default.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

from _block import Result, begin, make_parser, run_bench
from _burner import burning
from _races import alone, make_runner, race_final, read_plan

from launch.process_environment.openmp import WAIT_POLICIES, WAIT_POLICY
from launch.workers.fork_server_pool import ForkServerPool
from planner.trials.comparison import compare_results
from probes.node import probe


def main() -> int:
    """Measure and show."""
    parser = make_parser(
        __doc__, batch=(32, "of the plan"), rounds=(15, "of each start"), starts=(3, "of each")
    )
    add = parser.add_argument
    add("--use-case", default="simplebig", help="what to train (simplebig)")
    add("--burn", action="store_true", help="beside a process that burns half a core")
    arguments, out = begin(parser)
    node = probe(quick=True)
    plan = read_plan(None, node, arguments.batch)
    plans = [replace(plan, options={**plan.options, WAIT_POLICY: one}) for one in WAIT_POLICIES]
    with alone(out), ForkServerPool() as servers:
        runner = make_runner(arguments.use_case, None, node, servers)
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

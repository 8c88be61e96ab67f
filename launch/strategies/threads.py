"""Threads: the batch is split over model replicas in one process, one Python thread driving each.

Each replica has its own share of the cores. All share one copy of the parameters, so ``k``
replicas cost the memory of ``k`` gradients and activations, not of ``k`` models. With one replica
this is PyTorch's own way, several threads inside each operator: fewer and larger operators, but
every operator waits for its slowest thread. Several replicas wait once a step, and between their
operators they contend for Python's interpreter lock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from launch.errors import InvalidPlanError
from launch.plan import Plan, Setting
from launch.process_environment.openmp import WAIT_POLICY, wait_policy
from launch.strategies._base import Strategy, Suggest, layouts
from launch.strategies._rules import require, require_cpu, require_devices, require_options
from launch.strategies._settings import cpu_settings, draw, first_guess

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.local_group.group import LocalGroup
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware


class Threads(Strategy):
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        cores = node.cpu.usable_cores
        return f"usable_cores={cores}: threads need at least 2 cores" if cores < 2 else None

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        layout = trial.suggest_categorical("threads.layout", _layouts(node))
        replicas, threads = map(int, layout.split("x"))
        return Plan(
            strategy="threads",
            replicas=replicas,
            threads_per_process=replicas * threads,
            **draw(trial, "threads", cpu_settings(case, node, may_compile=replicas == 1)),
        )

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        guess = first_guess("threads", cpu_settings(case, node))
        full = layouts(node.cpu.usable_cores, at_least=1)[:2]
        return [{"threads.layout": f"{r}x{t}", **guess} for r, t in full]

    def check(self, plan: Plan) -> None:
        require(plan, processes=1)
        require_cpu(plan)
        require_devices(plan, 1)
        require_options(plan, WAIT_POLICY)
        wait_policy(plan)
        if plan.threads_per_process % plan.replicas:
            raise InvalidPlanError(
                f"strategy=threads, replicas={plan.replicas} and "
                f"threads_per_process={plan.threads_per_process}: use a multiple of the replicas, "
                "each has as many threads"
            )
        if plan.compile and plan.replicas > 1:
            raise InvalidPlanError(
                f"strategy=threads, replicas={plan.replicas} and compile=True: torch.compile is "
                "not safe in several threads at once, use compile=False"
            )

    def begins_early(self, plan: Plan) -> bool:
        return plan.is_eager_on_cpu

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        from launch.training.plain_step import make_single_step
        from launch.training.threaded_step import ThreadedStep

        if plan.replicas == 1:
            return make_single_step(plan, case, group)
        return ThreadedStep(plan, case, group)


def _layouts(node: Hardware) -> tuple[str, ...]:
    """List the ways to part the cores, as ``replicas x threads of each``."""
    pairs = layouts(node.cpu.usable_cores, at_least=1)
    return tuple(f"{replicas}x{threads}" for replicas, threads in pairs if replicas * threads > 1)

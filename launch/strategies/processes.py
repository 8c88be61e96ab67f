"""Processes: data parallelism over worker processes on disjoint cores, with shared parameters.

Each worker computes the gradients of its share of the node batch with its own threads and its
own interpreter. Gradients are summed and parameters updated in shared memory, each worker its
part: see `launch.training.averaging.averaging`. Workers wait for one another twice a step and send
nothing through a socket.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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


class Processes(Strategy):
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        cores = node.cpu.usable_cores
        return f"usable_cores={cores}: processes need at least 2 cores" if cores < 2 else None

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        layout = trial.suggest_categorical("processes.layout", _layouts(node))
        processes, threads = map(int, layout.split("x"))
        return Plan(
            strategy="processes",
            processes=processes,
            replicas=processes,
            threads_per_process=threads,
            **draw(trial, "processes", cpu_settings(case, node)),
        )

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        guess = first_guess("processes", cpu_settings(case, node))
        return [{"processes.layout": _middle_layout(node), **guess}]

    def check(self, plan: Plan) -> None:
        require(plan, replicas=plan.processes)
        require_cpu(plan)
        require_devices(plan, 1, plan.processes)
        require_options(plan, WAIT_POLICY)
        wait_policy(plan)

    def begins_early(self, plan: Plan) -> bool:
        return plan.is_eager_on_cpu

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        from launch.training.replica import prepare_model
        from launch.training.shared_step import SharedStep

        return SharedStep(plan, case, prepare_model(plan, case.model(), "cpu"), group)


def _middle_layout(node: Hardware) -> str:
    """Guess a layout: nearly every core, in about eight processes at most, for their memory."""
    cores = node.cpu.usable_cores
    pairs = [(p, t) for p, t in layouts(cores, at_least=2) if p * t > cores // 2]
    processes, threads = min(pairs, key=lambda pair: abs(pair[0] - min(cores, 8)))
    return f"{processes}x{threads}"


def _layouts(node: Hardware) -> tuple[str, ...]:
    """List the ways to part the cores, as ``processes x threads of each``."""
    return tuple(f"{p}x{t}" for p, t in layouts(node.cpu.usable_cores, at_least=2))

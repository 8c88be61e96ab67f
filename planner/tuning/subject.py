"""Subject of a search: what plans are compared with, and what they are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.strategies import strategy_names
from launch.strategies._gpus import cuda_devices, usable_gpus
from launch.strategies.gpu_data import BENCHMARK
from planner.plans.step_times import find_unmeasured_batches
from planner.search.space import PlanSources
from planner.trials.result import TrialResult
from probes.hardware import Hardware


class Subject(Protocol):
    """What is tuned, as far as a search has to know."""

    @property
    def defaults_name(self) -> str:
        """What a person calls `defaults_plan`."""

    @property
    def defaults_plan(self) -> Plan:
        """What runs without ddlplan: what speedups refer to."""

    @property
    def baseline_plan(self) -> Plan | None:
        """What papers compare with; ``None`` where there is no such thing."""

    def sources(self, names: Sequence[str] | None) -> PlanSources:
        """Give what plans are drawn from.

        Args:
            names: Strategies that the user wants; ``None``: all.
        """

    def at_own_batch(self, plan: Plan) -> Plan | None:
        """Give a plan with the batch that the user has now; ``None`` where it cannot have that."""

    def shares(self, plan: Plan, results: Sequence[TrialResult]) -> list[Plan]:
        """Give a plan with the batches of shares that are still to be timed."""


@dataclass(frozen=True, slots=True)
class TunedCase:
    """A use case."""

    case: CaseFacts
    node: Hardware
    defaults_name: str = "PyTorch's defaults"

    @property
    def defaults_plan(self) -> Plan:
        """PyTorch's defaults on this node."""
        return defaults_plan(self.case, self.node)

    @property
    def baseline_plan(self) -> Plan | None:
        """One core, with the use case's batch."""
        return Plan(strategy="sequential", node_batch=self.case.default_batch)

    def sources(self, names: Sequence[str] | None) -> PlanSources:
        """Give the names of the strategies."""
        return names or strategy_names()

    def at_own_batch(self, plan: Plan) -> Plan | None:
        """Give a plan with the use case's batch, where every micro-batch has a sample then."""
        batch = self.case.default_batch
        fits = plan.micro_batches * plan.replicas <= batch
        return replace(plan, node_batch=batch) if fits else None

    def shares(self, plan: Plan, results: Sequence[TrialResult]) -> list[Plan]:
        """Give a plan with a quarter and half of its batch."""
        return find_unmeasured_batches(plan, results)


def defaults_plan(case: CaseFacts, node: Hardware) -> Plan:
    """Give the plan that PyTorch runs by default: one process with all cores, and one GPU if any.

    Beside a GPU the cores load batches and run the backward pass's calls, as those of any script.
    """
    cores = node.cpu.usable_cores
    if gpus := usable_gpus(node):
        return Plan(
            strategy="gpu_data",
            node_batch=case.default_batch,
            threads_per_process=cores,
            devices=cuda_devices(gpus[:1]),
            options={BENCHMARK: False},
        )
    if cores == 1:
        return Plan(strategy="sequential", node_batch=case.default_batch)
    return Plan(strategy="threads", node_batch=case.default_batch, threads_per_process=cores)

"""Base of the strategies that put consecutive layers on consecutive devices."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from launch.errors import InvalidPlanError
from launch.plan import Plan, Setting
from launch.process_environment.openmp import WAIT_POLICY, wait_policy
from launch.strategies._base import Strategy, layouts, most_cores_first
from launch.strategies._gpus import cuda_devices, usable_gpus
from launch.strategies._rules import require, require_distinct_devices
from launch.strategies._settings import Settings, cpu_settings, draw, first_guess, gpu_settings
from launch.training.pipeline.cut import parse_cut

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.local_group.group import LocalGroup
    from launch.strategies._base import Suggest
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware

SCHEDULES = ("1f1b", "gpipe")
_AVERAGES = ("shared", "all_reduce")
"""How equal stages on CPUs average: in shared memory, or as GPUs do, to compare."""

_MICRO_BATCHES = (2, 4, 8, 16)
_MAX_STAGES = 8
FIRST_MICRO_BATCHES = 8  # for two stages a bubble of 1/9

Layout = tuple[int, int, int]
"""Replicas, stages of each, and threads of each stage."""


class StagedStrategy(Strategy):
    """Pipelines side by side, each with consecutive layers on consecutive devices."""

    name: str
    min_workers: int

    @abstractmethod
    def layouts(self, case: CaseFacts, node: Hardware) -> Mapping[str, Layout]:
        """List the layouts to choose from, those that use most of the node first, by name."""

    @abstractmethod
    def guess_layout(self, case: CaseFacts, node: Hardware) -> str:
        """Give the name of the layout to try first."""

    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        if case.uncut_reason is not None:
            return case.uncut_reason
        if case.updates_at_once and self.uses_gpus(node):
            return "the optimizer must see all parameters at once, and each GPU has some of them"
        if case.max_stages < 2:
            return (
                "the model cannot be cut into stages: the use case gives no layers(), or one of "
                "them has get_extra_state(): add the method, or keep such state in buffers"
            )
        if not self.layouts(case, node):
            return (
                f"usable_cores={node.cpu.usable_cores}: at least {self.min_workers} workers are "
                "needed, each with a core"
            )
        return None

    def uses_gpus(self, node: Hardware) -> bool:
        """Tell whether the stages lie on GPUs, because there are enough of them."""
        return len(usable_gpus(node)) >= self.min_workers

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        layouts = self.layouts(case, node)
        chosen = trial.suggest_categorical(f"{self.name}.layout", tuple(layouts))
        replicas, stages, threads = layouts[chosen]
        settings = draw(trial, self.name, self._settings(case, node))
        schedule = trial.suggest_categorical(f"{self.name}.schedule", SCHEDULES)
        most = max(1, settings["node_batch"] // replicas)
        settings["micro_batches"] = min(settings["micro_batches"], most)
        gpus = usable_gpus(node)[: replicas * stages]
        return Plan(
            strategy=self.name,
            processes=replicas * stages,
            replicas=replicas,
            threads_per_process=threads,
            devices=cuda_devices(gpus) if self.uses_gpus(node) else ("cpu",),
            options={
                # Fewer micro-batches than stages never reach the state that 1F1B is about.
                "schedule": schedule if settings["micro_batches"] >= stages else "gpipe",
                "cut": "measured",
            },
            **settings,
        )

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        # 1F1B holds the activations of as many micro-batches as there are stages, GPipe of all.
        settings = self._settings(case, node)
        first = int(settings["micro_batches"].first)
        return [
            {
                f"{self.name}.layout": self.guess_layout(case, node),
                **first_guess(self.name, settings),
                f"{self.name}.micro_batches": max(FIRST_MICRO_BATCHES, first),
                f"{self.name}.schedule": "1f1b",
            }
        ]

    def sends_at_end(self, plan: Plan) -> bool:
        return True  # large matrices get their gradients after the last micro-batch

    def accumulate(self, plan: Plan, passes: int) -> Plan:
        """Give the plan of so many passes, by 1F1B where they have enough micro-batches for it.

        That keeps the activations of a few micro-batches, and not those of all passes.
        """
        found = super().accumulate(plan, passes)
        stages = plan.processes // plan.replicas
        if passes == 1 or "schedule" not in plan.options or found.micro_batches < stages:
            return found
        return replace(found, options={**plan.options, "schedule": "1f1b"})

    def check(self, plan: Plan) -> None:
        require(plan, compile=False, cuda_graph=False)
        if plan.processes % plan.replicas or plan.processes < 2 * plan.replicas:
            raise InvalidPlanError(
                f"strategy={plan.strategy}, processes={plan.processes} and "
                f"replicas={plan.replicas}: use a multiple of the replicas, at least two stages "
                "for each"
            )
        require_distinct_devices(plan, plan.processes)
        _check_options(plan, stages=plan.processes // plan.replicas)

    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        from launch.training.pipeline.step import PipelineStep

        return PipelineStep(plan, case, group)

    def list_layouts(self, case: CaseFacts, node: Hardware) -> list[Layout]:
        """List what fits this node, also with other replicas: on its GPUs if enough, else cores."""
        most = min(case.max_stages, _MAX_STAGES)
        return [
            (workers // stages, stages, threads)
            for workers, threads in self._parts(node)
            for stages in range(2, min(workers, most) + 1)
            if workers % stages == 0
        ]

    def _parts(self, node: Hardware) -> list[tuple[int, int]]:
        """List numbers of workers with the threads of each.

        Beside those that use nearly all cores or half of them, those that leave fewer cores idle
        than the strategy needs workers: of five cores, four make two pipelines of two stages, and
        five make none. Where there are enough cores at all, that number is among them.
        """
        cores, least = node.cpu.usable_cores, self.min_workers
        if self.uses_gpus(node):
            most = min(len(usable_gpus(node)), cores)
            return [(workers, cores // workers) for workers in range(most, least - 1, -1)]
        pairs = {
            (workers, cores // workers)
            for workers in range(least, cores + 1)
            if cores % workers < least
        }
        pairs.update(layouts(cores, at_least=least))
        return sorted(pairs, key=most_cores_first)

    def _settings(self, case: CaseFacts, node: Hardware) -> Settings:
        case = replace(case, can_compile=False)  # what a stage runs is not one model to compile
        if self.uses_gpus(node):
            return gpu_settings(case, node, micro_batches=_MICRO_BATCHES)
        return cpu_settings(case, node, micro_batches=_MICRO_BATCHES)


def _check_options(plan: Plan, *, stages: int) -> None:
    known = ["schedule", "cut"]
    if plan.devices == ("cpu",):
        # Alone there is nothing to average; on GPUs no choice.
        known += ["average", WAIT_POLICY] if plan.replicas > 1 else [WAIT_POLICY]
    if unknown := plan.options.keys() - set(known):
        raise InvalidPlanError(
            f"strategy={plan.strategy}, replicas={plan.replicas}, devices={','.join(plan.devices)} "
            f"and options {','.join(sorted(unknown))}: use {', '.join(known)}"
        )
    wait_policy(plan)
    schedule = plan.options.get("schedule", SCHEDULES[0])
    if schedule not in SCHEDULES:
        raise InvalidPlanError(
            f"strategy={plan.strategy} and schedule={schedule!r}: use {' or '.join(SCHEDULES)}"
        )
    average = plan.options.get("average", _AVERAGES[0])
    if average not in _AVERAGES:
        raise InvalidPlanError(
            f"strategy={plan.strategy} and average={average!r}: use {' or '.join(_AVERAGES)}"
        )
    if schedule == "1f1b" and plan.micro_batches < stages:
        raise InvalidPlanError(
            f"strategy={plan.strategy}, schedule=1f1b, micro_batches={plan.micro_batches} and "
            f"stages={stages}: use at least as many micro-batches, or schedule=gpipe"
        )
    cut = str(plan.options.get("cut", "measured"))
    if cut not in ("measured", "paper"):
        first_layers = parse_cut(cut)
        if len(first_layers) + 1 != stages:
            raise InvalidPlanError(
                f"strategy={plan.strategy}, cut={cut} and stages={stages}: name {stages - 1} layers"
            )

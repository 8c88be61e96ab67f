"""Contracts: what a search draws plans from, and what every strategy builds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from launch.plan import Plan, Setting

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.local_group.group import LocalGroup
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware


class Suggest(Protocol):
    """Draws the value of one named parameter, as an Optuna trial does."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Draw one of ``choices``, which must be the same at every call with this name."""


class PlanSource(ABC):
    """What a search draws plans from. How they are run, it does not say."""

    @abstractmethod
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        """Return why none of its plans can run here, ``None`` where one can.

        Runs where torch is not loaded.
        """

    def uses_gpus(self, node: Hardware) -> bool:
        """Tell whether some of its plans may run on a GPU. Only where there is no `obstacle`.

        Runs where torch is not loaded.
        """
        return False

    def uses_cpu(self, node: Hardware) -> bool:
        """Tell the same of CPUs: by default, whether none of its plans runs on a GPU."""
        return not self.uses_gpus(node)

    @abstractmethod
    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        """Draw one plan from the search space. Only where there is no `obstacle`.

        Runs where torch is not loaded. Parameter names begin with the name of the strategy that
        the plan names, because a study keeps one distribution per name; one ends in
        ``.node_batch``.
        """

    @abstractmethod
    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        """Name parameters worth trying before any is known, the most promising first.

        Each is complete: drawing exactly these values from `suggest` gives a plan.
        """


class Strategy(PlanSource):
    """One way to spread a training step inside a node. It has no state."""

    def interactions(self) -> Sequence[tuple[str, str]]:
        """Name pairs of settings whose effects on the speed depend on each other.

        The search takes the effects of all others to add up. The second may be ``layout``: then the
        effect of the first depends on the number of workers. Options are named as in the plan.
        """
        return (("input", "layout"), ("allocator", "layout"), ("memory_format", "precision"))

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Check that `build` can make a step of a plan that names this strategy.

        A plan from a file may have any values; one that passes trains as the others do. Runs
        where torch is not loaded. Whether the plan fits a node, `Plan.check_fits` checks.

        Raises:
            InvalidPlanError: Its values make no sense together, or name what is not used.
        """

    def begins_early(self, plan: Plan) -> bool:
        """Whether a step begins while the sums of the last one are in flight between nodes.

        Only where the use case can be updated in parts: see `CaseFacts.updates_in_parts`.
        """
        return False

    def sends_at_end(self, plan: Plan) -> bool:
        """Whether a node sends no gradient before it has computed all.

        So it is where a backward pass runs as a whole, compiled or recorded.
        """
        return plan.compile or plan.cuda_graph

    def accumulate(self, plan: Plan, passes: int) -> Plan:
        """Give the plan whose step is so many passes of a plan, each in its own micro-batches."""
        return replace(
            plan,
            node_batch=plan.node_batch * passes,
            micro_batches=plan.micro_batches * passes,
        )

    @abstractmethod
    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        """Build this worker's part of the step.

        Collective: every worker of ``group`` calls it once, with the same plan. From the same
        seed, the gradients equal those of one process on the whole node batch, up to rounding,
        unless the model normalises over the batch (BatchNorm), which sees one part at a time.
        """


_MIN_CORE_SHARE = 0.9
"""Share of the cores that a layout must use to count as one of all of them."""


def layouts(cores: int, *, at_least: int) -> list[tuple[int, int]]:
    """List ``(parts, threads per part)`` worth trying on ``cores`` cores.

    All cores in equal parts, or nearly all where their number does not divide, and half of them,
    for work that the memory limits rather than the cores.
    """
    pairs = {
        (parts, threads)
        for parts in range(at_least, cores + 1)
        for threads in (cores // parts, max(1, cores // (2 * parts)))
        if parts * threads >= _MIN_CORE_SHARE * cores or parts * threads == cores // 2
    }
    return sorted(pairs, key=most_cores_first)


def most_cores_first(pair: tuple[int, int]) -> tuple[int, int]:
    """Order ``(parts, threads per part)`` by the cores that they use, then by fewest parts."""
    parts, threads = pair
    return -parts * threads, parts

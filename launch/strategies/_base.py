"""What does every strategy promise? The contract, said once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from launch.plan import MEMORY_FORMATS, Plan, Setting

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.training.group import LocalGroup
    from launch.training.step import TrainStep
    from launch.use_cases._base import UseCase
    from probes.hardware import Hardware


class Suggest(Protocol):
    """Draws the value of one named parameter, as an Optuna trial does."""

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Draw one of ``choices``, which must be the same at every call with this name."""


class Strategy(ABC):
    """One way to spread a training step inside a node. Keeps no state."""

    @abstractmethod
    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        """Say why no plan of this strategy can run here, ``None`` where one can.

        Runs where torch is not loaded.
        """

    @abstractmethod
    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        """Draw one plan from this strategy's search space.

        Runs where torch is not loaded. Parameter names begin with the strategy's name,
        because a study keeps one distribution per name.

        Raises:
            InfeasiblePlanError: No plan of this strategy can run here.
        """

    @abstractmethod
    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        """Name parameters worth trying before any is known, the most promising first.

        Each is complete: drawing exactly these values from `suggest` gives a plan.
        """

    @abstractmethod
    def check(self, plan: Plan) -> None:
        """Hold a plan that names this strategy against what `build` can make of it.

        A plan from a file may ask for anything; one that passes trains as the others do. Runs
        where torch is not loaded. Whether the plan fits a node is another question:
        `Plan.check_fits`.

        Raises:
            InvalidPlanError: Its values make no sense together, or name what is not used.
        """

    def begins_early(self, plan: Plan) -> bool:
        """Say whether a step begins while the sums of the last one are on their way between nodes.

        Where the use case can be updated in parts: see `CaseFacts.updates_in_parts`.
        """
        return False

    def sends_at_end(self, plan: Plan) -> bool:
        """Say whether other nodes have no gradient before this one has computed all.

        So it is where a backward pass runs as a whole, compiled or recorded.
        """
        return plan.compile or plan.cuda_graph

    @abstractmethod
    def build(self, plan: Plan, case: UseCase, group: LocalGroup) -> TrainStep:
        """Build this worker's part of the step.

        Collective: every worker of ``group`` calls it once, with the same plan. From the same
        seed, the gradients equal those of one process on the whole node batch, up to rounding,
        unless the model normalises over the batch (BatchNorm), which sees one part at a time.
        """


class Fixed:
    """Draws values that are already chosen; a `Suggest` of its own kind.

    Raises:
        KeyError: A parameter was not chosen.
        ValueError: A chosen value is not among the choices.
    """

    def __init__(self, values: Mapping[str, Setting]) -> None:
        self._values = values

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Return the chosen value of ``name``."""
        value = self._values[name]
        if value not in choices:
            raise ValueError(f"{name}={value!r}: not one of {choices}")
        return value


def draw_shared_settings(
    trial: Suggest,
    prefix: str,
    case: CaseFacts,
    *,
    micro_batches: Sequence[int] = (1, 2, 4),
    may_compile: bool = True,
) -> dict[str, Any]:
    """Draw what every CPU strategy sets: batch, input and memory.

    Args:
        trial: Draws.
        prefix: The strategy's name.
        case: What is trained.
        micro_batches: Counts to choose from.
        may_compile: Whether this layout can be compiled, where any can.
    """

    def draw(name: str, choices: Sequence[Any]) -> Any:
        return trial.suggest_categorical(f"{prefix}.{name}", choices)

    return {
        "node_batch": draw("node_batch", case.batch_choices),
        "micro_batches": draw("micro_batches", micro_batches),
        "memory_format": draw("memory_format", MEMORY_FORMATS),
        "precision": draw("precision", case.precisions),
        "input": (source := draw("input", case.inputs)),
        # Decoded pictures are read faster than they could be handed over.
        "loader_workers": draw("loader_workers", (0, 1, 2)) if source == "files" else 0,
        "allocator": draw("allocator", case.allocators),
        "fused_optimizer": draw("fused_optimizer", switch_choices(case.has_fused_optimizer)),
        "compile": draw("compile", switch_choices(case.can_compile)) if may_compile else False,
    }


def guess_shared_settings(prefix: str, case: CaseFacts) -> dict[str, Setting]:
    """Guess what `draw_shared_settings` should draw first.

    A batch of several times the default shrinks the optimizer's share of a step; channels_last
    is oneDNN's own layout; a step that keeps its memory is spared the page faults.
    """
    few = [batch for batch in case.batch_choices if batch <= 4 * case.default_batch]
    return {
        f"{prefix}.node_batch": max(few, default=case.batch_choices[0]),
        f"{prefix}.micro_batches": 1,
        f"{prefix}.memory_format": "channels_last",
        f"{prefix}.precision": "bf16" if "bf16" in case.precisions else case.precisions[0],
        f"{prefix}.input": case.inputs[-1],
        f"{prefix}.loader_workers": 0,
        f"{prefix}.allocator": "retain",
        f"{prefix}.fused_optimizer": case.has_fused_optimizer,
        f"{prefix}.compile": False,
    }


def switch_choices(may_be: bool) -> tuple[bool, ...]:
    """List the values of a setting that is on or off, and off where it may not be on."""
    return (False, True) if may_be else (False,)


_MOST = 0.9
"""Share of the cores that a layout must use to count as one of all of them."""


def layouts(cores: int, *, at_least: int) -> list[tuple[int, int]]:
    """List ``(parts, threads per part)`` worth trying on ``cores`` cores.

    All cores in equal parts, or nearly all where their number does not divide, and half of them,
    for work that the memory limits rather than the cores.

    Args:
        cores: Usable cores.
        at_least: Smallest number of parts.
    """
    pairs = {
        (parts, threads)
        for parts in range(at_least, cores + 1)
        for threads in (cores // parts, max(1, cores // (2 * parts)))
        if parts * threads >= _MOST * cores or parts * threads == cores // 2
    }
    return sorted(pairs, key=most_cores_first)


def most_cores_first(pair: tuple[int, int]) -> tuple[int, int]:
    """Order ``(parts, threads per part)`` by the cores that they use, then by fewest parts."""
    parts, threads = pair
    return -parts * threads, parts

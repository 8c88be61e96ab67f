"""What do strategies for GPUs set, beside their layout?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from launch.plan import MEMORY_FORMATS, Setting
from launch.strategies._base import switch_choices
from launch.strategies._gpus import usable_gpus

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.strategies._base import Suggest
    from probes.hardware import Hardware

_PIXELS_SHARE = 0.5
"""Largest share of a GPU's free memory for the data set: model and activations want the rest."""

_FIRST_FACTOR = 16
"""Largest batch that is tried first / the default one."""


def draw_gpu_settings(
    trial: Suggest,
    prefix: str,
    case: CaseFacts,
    node: Hardware,
    *,
    micro_batches: Sequence[int] = (1, 2),
    may_record: bool = False,
) -> dict[str, Any]:
    """Draw what every GPU strategy sets: batch, input and form of the computation.

    Args:
        trial: Draws.
        prefix: The strategy's name.
        case: What is trained.
        node: Where.
        micro_batches: Counts to choose from.
        may_record: Whether this layout can run as a CUDA graph.
    """

    def draw(name: str, choices: Sequence[Any]) -> Any:
        return trial.suggest_categorical(f"{prefix}.{name}", choices)

    return {
        "node_batch": draw("node_batch", _batches(case)),
        "micro_batches": draw("micro_batches", micro_batches),
        "memory_format": draw("memory_format", MEMORY_FORMATS),
        "precision": draw("precision", case.gpu_precisions),
        "input": (source := draw("input", _inputs(case, node))),
        "loader_workers": draw("loader_workers", _loaders(node)) if source == "files" else 0,
        "fused_optimizer": draw("fused_optimizer", switch_choices(case.has_fused_optimizer)),
        "compile": draw("compile", switch_choices(case.can_compile)),
        "cuda_graph": draw("cuda_graph", (False, True)) if may_record else False,
    }


def guess_gpu_settings(prefix: str, case: CaseFacts, node: Hardware) -> dict[str, Setting]:
    """Guess what `draw_gpu_settings` should draw first.

    A large batch keeps a GPU busy and its host ahead of it, until there is nothing left to gain but
    memory to lose; its matrix units are made for bf16 and its convolutions for channels_last.
    """
    few = [batch for batch in _batches(case) if batch <= _FIRST_FACTOR * case.default_batch]
    return {
        f"{prefix}.node_batch": max(few, default=_batches(case)[0]),
        f"{prefix}.micro_batches": 1,
        f"{prefix}.memory_format": "channels_last",
        f"{prefix}.precision": case.gpu_precisions[-1],
        f"{prefix}.input": _inputs(case, node)[-1],
        f"{prefix}.loader_workers": _loaders(node)[-1],
        f"{prefix}.fused_optimizer": case.has_fused_optimizer,
        f"{prefix}.compile": False,
        f"{prefix}.cuda_graph": False,
    }


def _batches(case: CaseFacts) -> tuple[int, ...]:
    return case.gpu_batch_choices or case.batch_choices


def _inputs(case: CaseFacts, node: Hardware) -> tuple[str, ...]:
    """List the inputs; decoded pictures go to the GPU where every GPU has room for them."""
    if "cache" not in case.inputs or case.pixel_bytes is None:
        return case.inputs
    room = min((gpu.free_bytes or 0 for gpu in usable_gpus(node)), default=0)
    fits = case.pixel_bytes <= _PIXELS_SHARE * room
    return (*case.inputs, "device") if fits else case.inputs


def _loaders(node: Hardware) -> tuple[int, ...]:
    """List numbers of loading processes of a worker: none, and by doubling up to its cores."""
    most = max(2, node.cpu.usable_cores // max(1, len(usable_gpus(node))))
    return (0, *(2**power for power in range(1, most.bit_length()) if 2**power <= most))

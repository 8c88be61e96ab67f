"""Settings that plans of every strategy have, with the values that a search may give them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launch.plan import MEMORY_FORMATS, Setting
from launch.strategies._gpus import usable_gpus

if TYPE_CHECKING:
    from launch.case_facts import CaseFacts
    from launch.strategies._base import Suggest
    from probes.hardware import Hardware

_PIXELS_SHARE = 0.5
"""Largest share of a GPU's free memory for the data set: model and activations want the rest."""

_LEAST_GAIN = 1.1
"""Of oneDNN's products over MKL's, for linear layers to try them: less is lost in the backward
pass, half of which stays with MKL."""

_CPU_FACTOR, _GPU_FACTOR = 4, 16
"""Largest batch that is tried first / the default one."""


@dataclass(frozen=True, slots=True)
class Choices:
    """Values of one setting, and the one to try first."""

    values: Sequence[Setting]
    first: Setting


Settings = Mapping[str, Choices]
"""By field of `launch.plan.Plan`, in the order in which they are drawn."""


def cpu_settings(
    case: CaseFacts,
    node: Hardware,
    *,
    micro_batches: Sequence[int] = (1, 2, 4),
    may_compile: bool = True,
) -> Settings:
    """List what every CPU strategy varies: batch, input and memory.

    First come a batch of several times the default, which shrinks the optimizer's share of a step;
    channels_last, oneDNN's own layout; and retained memory, which spares a step its page faults.

    Args:
        case: What is trained.
        node: Where.
        micro_batches: Counts to choose from; more where the user has fixed a large batch.
        may_compile: Whether this layout can be compiled, where any can.
    """
    precision = "bf16" if "bf16" in case.precisions else case.precisions[0]
    batches = _batches(case, case.batch_choices, _CPU_FACTOR)
    if case.look_batch is not None:  # never guessed: what looks show is asked for when it is
        batches = Choices((case.look_batch, *batches.values), batches.first)
    gain = None if node.speeds is None else node.speeds.onednn_product_gain
    return {
        "node_batch": batches,
        "micro_batches": _pieces(case, case.batch_choices, micro_batches, _CPU_FACTOR),
        "memory_format": Choices(MEMORY_FORMATS, "channels_last"),
        "precision": Choices(case.precisions, precision),
        "input": Choices(case.inputs, case.inputs[-1]),
        "loader_workers": Choices(_loaders(1, case.most_loaders), 0),
        "allocator": Choices(case.allocators, "retain"),
        "fused_optimizer": _switch(case.has_fused_optimizer, case.has_fused_optimizer),
        **({"compile": _switch(case.can_compile)} if may_compile else {}),
        "onednn_linear": _switch(gain is not None and gain >= _LEAST_GAIN),
    }


def gpu_settings(
    case: CaseFacts,
    node: Hardware,
    *,
    micro_batches: Sequence[int] = (1, 2),
    may_record: bool = False,
) -> Settings:
    """List what every GPU strategy varies: batch, input and form of the computation.

    First comes a large batch: it keeps a GPU busy and its host ahead of it, until a larger one
    costs memory and gains nothing. Matrix units are made for bf16, convolutions for channels_last.

    Args:
        case: What is trained.
        node: Where.
        micro_batches: Counts to choose from; more where the user has fixed a large batch.
        may_record: Whether this layout can run as a CUDA graph.
    """
    inputs = _gpu_inputs(case, node)
    # Loading processes of a worker: none, and by doubling up to its cores.
    loaders = _loaders(2, max(2, node.cpu.usable_cores // max(1, len(usable_gpus(node)))))
    batches = case.gpu_batch_choices or case.batch_choices
    return {
        "node_batch": _batches(case, batches, _GPU_FACTOR),
        "micro_batches": _pieces(case, batches, micro_batches, _GPU_FACTOR),
        "memory_format": Choices(MEMORY_FORMATS, "channels_last"),
        "precision": Choices(case.gpu_precisions, case.gpu_precisions[-1]),
        "input": Choices(inputs, inputs[-1]),
        "loader_workers": Choices(loaders, loaders[-1]),
        "fused_optimizer": _switch(case.has_fused_optimizer, case.has_fused_optimizer),
        "compile": _switch(case.can_compile),
        # A weight is read from the GPU in each step, which a recorded one cannot.
        **({"cuda_graph": _switch(not case.has_weights)} if may_record else {}),
    }


def draw(trial: Suggest, prefix: str, settings: Settings) -> dict[str, Any]:
    """Draw a value of every setting; the name of each begins with a prefix, the strategy's name."""
    drawn: dict[str, Any] = {}
    for name, choices in settings.items():
        if name == "loader_workers" and drawn["input"] != "files":
            continue  # decoded pictures are read faster than a process could send them
        if name == "onednn_linear" and (drawn["precision"] != "fp32" or drawn.get("compile")):
            continue  # it would change nothing
        drawn[name] = trial.suggest_categorical(f"{prefix}.{name}", choices.values)
    return drawn


def first_guess(prefix: str, settings: Settings) -> dict[str, Setting]:
    """Guess what `draw` should draw first."""
    return {f"{prefix}.{name}": choices.first for name, choices in settings.items()}


def _batches(case: CaseFacts, batches: Sequence[int], factor: int) -> Choices:
    few = [batch for batch in batches if batch <= factor * case.default_batch]
    return Choices(batches, max(few, default=batches[0]))


def _pieces(case: CaseFacts, batches: Sequence[int], counts: Sequence[int], factor: int) -> Choices:
    """List counts of micro-batches; the guess is one whose pieces are no larger than a first batch.

    A batch that may not be made smaller is cut instead, by doubling, down to the default one:
    memory need not hold its activations at once.
    """
    whole = [batch for batch in batches if batch >= case.default_batch] or batches
    batch = whole[0] if len(whole) == 1 else case.default_batch
    most = max(counts[-1], batch // case.default_batch)
    doubled = [2**power for power in range(most.bit_length()) if counts[-1] < 2**power <= most]
    every = (*counts, *doubled)
    small = (count for count in every if batch <= count * factor * case.default_batch)
    return Choices(every, next(small, every[-1]))


def _switch(may_be_on: bool, first: bool = False) -> Choices:
    return Choices((False, True) if may_be_on else (False,), first)


def _gpu_inputs(case: CaseFacts, node: Hardware) -> tuple[str, ...]:
    """List the inputs; decoded pictures go to the GPU where they fit into every GPU's memory."""
    if "cache" not in case.inputs or case.pixel_bytes is None:
        return case.inputs
    free_bytes = min((gpu.free_bytes or 0 for gpu in usable_gpus(node)), default=0)
    fits = case.pixel_bytes <= _PIXELS_SHARE * free_bytes
    return (*case.inputs, "device") if fits else case.inputs


def _loaders(least: int, most: int) -> tuple[int, ...]:
    return (0, *(least << power for power in range((most // least).bit_length())))

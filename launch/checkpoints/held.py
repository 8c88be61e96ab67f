"""What does a worker hold between steps that a checkpoint keeps? Tensors, by name and position.

A worker may hold whole parameters or pieces of them, in the order of its memory. A checkpoint knows
parameters by the name that they have in the model, and their elements by their place in the shape,
so that another plan can take it up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldPiece:
    """Elements of one parameter that an optimizer updates."""

    name: str
    """Of the parameter, the first one that the model gives it."""

    parameter: Tensor
    """All of it, for its shape and its strides."""

    start: int
    """The first element, in the order of the parameter's memory."""

    owned: Tensor
    """What the optimizer knows: ``parameter`` itself, or a flat part of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOptimizer:
    """An optimizer and what it updates."""

    optimizer: Optimizer

    names: Sequence[Sequence[str]]
    """Of each group the parameters, those without a piece here too."""

    pieces: Sequence[HeldPiece]

    @classmethod
    def of_parameters(cls, optimizer: Optimizer, model: nn.Module) -> HeldOptimizer:
        """Describe an optimizer of whole parameters."""
        names = parameter_names(model)
        groups = [group["params"] for group in optimizer.param_groups]
        return cls(
            optimizer=optimizer,
            names=[[names[id(p)] for p in group if id(p) in names] for group in groups],
            pieces=[
                HeldPiece(name=names[id(p)], parameter=p, start=0, owned=p)
                for group in groups
                for p in group
                if id(p) in names
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldState:
    """All that a worker holds."""

    models: Sequence[nn.Module]
    """Its replicas, which have equal parameters; the buffers of the first one count."""

    weights: Sequence[str]
    """Names in the first model's ``state_dict`` whose values this worker writes."""

    optimizers: Sequence[HeldOptimizer]

    writes_optimizers: bool = True
    """False where another worker holds the same and writes it."""


def parameter_names(model: nn.Module) -> dict[int, str]:
    """Give the name of each parameter, by its identity; of tied ones the first name."""
    return {id(parameter): name for name, parameter in model.named_parameters()}

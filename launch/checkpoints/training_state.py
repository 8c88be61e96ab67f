"""State of a worker that a checkpoint stores: tensors, by name and position.

A worker may have whole parameters or pieces of them, in the order of their memory. A checkpoint
names parameters as the model does, and stores their elements by their position in the shape, so
that another plan can resume from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn
from torch.optim import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerPiece:
    """Elements of one parameter that an optimizer updates."""

    name: str
    """First name of the parameter in the model."""

    parameter: Tensor
    """The whole parameter, for its shape and its strides."""

    start: int
    """First element, in the order of the parameter's memory."""

    owned: Tensor
    """Tensor that the optimizer updates: ``parameter`` itself, or a flat part of its memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerParts:
    """An optimizer and the pieces that it updates."""

    optimizer: Optimizer

    names: Sequence[Sequence[str]]
    """Names of each group's parameters, also of those without a piece here."""

    pieces: Sequence[OptimizerPiece]

    @classmethod
    def of_parameters(cls, optimizer: Optimizer, model: nn.Module) -> OptimizerParts:
        """Describe an optimizer of whole parameters."""
        names = parameter_names(model)
        groups = [group["params"] for group in optimizer.param_groups]
        return cls(
            optimizer=optimizer,
            names=[[names[id(p)] for p in group if id(p) in names] for group in groups],
            pieces=[
                OptimizerPiece(name=names[id(p)], parameter=p, start=0, owned=p)
                for group in groups
                for p in group
                if id(p) in names
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """All state of a worker between two steps."""

    models: Sequence[nn.Module]
    """Its replicas, which have equal parameters; buffers are taken from the first."""

    weights: Sequence[str]
    """Names in the first model's ``state_dict`` whose values this worker writes."""

    optimizers: Sequence[OptimizerParts]

    writes_optimizers: bool = True
    """False where another worker has the same and writes it."""


def parameter_names(model: nn.Module) -> dict[int, str]:
    """Return the name of each parameter by its ``id``; of tied ones the first name."""
    return {id(parameter): name for name, parameter in model.named_parameters()}

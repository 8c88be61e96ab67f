"""Optimizer that updates pieces of parameters, some of them at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

from launch.local_group.shared_parameters import copy_piece
from launch.training.averaging.chunks import Piece


class PieceOptimizer:
    """Makes an optimizer update pieces in place of the parameters that it was made with.

    Its groups have the same settings, and the pieces of their parameters. State that it made at its
    construction, as Adagrad does, is cut as the parameters are.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        parameters: Sequence[nn.Parameter],
        pieces: Sequence[Piece],
    ) -> None:
        self._optimizer = optimizer
        position = {id(parameter): index for index, parameter in enumerate(parameters)}
        pieces_of: dict[int, list[Piece]] = {}
        for piece in pieces:
            pieces_of.setdefault(piece.index, []).append(piece)
        early_state = dict(optimizer.state)
        optimizer.state.clear()
        self._group_of: dict[int, int] = {}
        for number, group in enumerate(optimizer.param_groups):
            owned: list[Tensor] = []
            for parameter in group["params"]:
                index = position.get(id(parameter))
                if index is None:  # frozen
                    continue
                self._group_of[index] = number
                for piece in pieces_of.get(index, ()):
                    owned.append(piece.owned)
                    if parameter in early_state:
                        state = _cut_state(early_state[parameter], parameter, piece)
                        optimizer.state[piece.owned] = state
            group["params"] = owned

    @property
    def groups(self) -> list[list[int]]:
        """Numbers of the parameters in each of the optimizer's groups, with or without a piece."""
        groups: list[list[int]] = [[] for _ in self._optimizer.param_groups]
        for index, number in self._group_of.items():
            groups[number].append(index)
        return groups

    @property
    def has_hooks(self) -> bool:
        """Whether the optimizer's steps have hooks, which expect to see it complete."""
        return has_hooks(self._optimizer)

    def step(self) -> None:
        """Update all pieces that have a gradient."""
        self._optimizer.step()

    def pretend_step(self) -> None:
        """Let schedules believe in a step of an optimizer that has nothing to update here."""
        self._optimizer._opt_called = True  # type: ignore[attr-defined]

    def settings(self) -> list[dict[str, Any]]:
        """Copy the groups' settings as they are now, such as a learning rate that will change."""
        return [
            {
                key: value.clone() if isinstance(value, Tensor) else value
                for key, value in group.items()
                if key != "params"
            }
            for group in self._optimizer.param_groups
        ]

    @contextmanager
    def in_parts(
        self, settings: Sequence[dict[str, Any]] | None = None
    ) -> Iterator[Callable[[Sequence[Piece]], None]]:
        """Yield a function that updates some pieces; the optimizer sees only these meanwhile.

        Groups without any of them are hidden too, since each costs a call time.

        Args:
            settings: Settings of an earlier time to update with; by default those of now.
        """
        groups = self._optimizer.param_groups
        used = settings or groups

        def step(pieces: Sequence[Piece]) -> None:
            chosen: dict[int, list[Tensor]] = {}
            for piece in pieces:
                if (number := self._group_of.get(piece.index)) is not None:  # else none trains it
                    chosen.setdefault(number, []).append(piece.owned)
            self._optimizer.param_groups = [
                {**used[number], "params": owned} for number, owned in chosen.items()
            ]
            self._optimizer.step()

        try:
            yield step
        finally:
            self._optimizer.param_groups = groups


def has_hooks(optimizer: Optimizer) -> bool:
    """Whether something else is called with an optimizer's steps."""
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or torch_optimizer._global_optimizer_pre_hooks
        or torch_optimizer._global_optimizer_post_hooks
    )


def _cut_state(state: dict[str, Any], parameter: Tensor, piece: Piece) -> dict[str, Any]:
    def cut(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if value.shape != parameter.shape:
            return value.clone()
        return copy_piece(value, parameter, piece.start, piece.owned)

    return {key: cut(value) for key, value in state.items()}

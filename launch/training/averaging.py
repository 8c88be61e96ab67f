"""How do the replicas of a node agree on one gradient? By shared memory, each doing its part.

All replicas share one copy of the parameters, and each has a gradient buffer that the others
can read. A step is::

    worker 0   backward -> own buffer | sum part 0 of all buffers, update part 0 | next step
    worker 1   backward -> own buffer | sum part 1 of all buffers, update part 1 | next step
                                  barrier                                   barrier

No gradient is sent anywhere and no parameter is sent back: an all-reduce reads and writes
everything again on every worker, while here each byte is summed and updated by one worker. The
optimizer's state exists once, in the same parts (Rajbhandari et al., "ZeRO", 2020,
https://arxiv.org/abs/1910.02054, stage 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor, nn

from launch.errors import UseCaseError
from launch.training.group import LocalGroup

_ALIGNMENT_BYTES = 64  # a cache line, so that no two parts write to the same one

_ELEMENTWISE = frozenset(
    {
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adamax,
        torch.optim.NAdam,
        torch.optim.RAdam,
        torch.optim.RMSprop,
        torch.optim.Rprop,
        torch.optim.Adagrad,
        torch.optim.Adadelta,
        torch.optim.ASGD,
    }
)
"""Optimizers that treat each element by itself, so that a tensor may be cut anywhere.

By exact class: a subclass may do anything.
"""


class SharedParameters:
    """One copy of a model's trained parameters for all replicas, and a gradient buffer for each.

    Collective: every replica of ``group`` builds it once, over equal models. Afterwards the
    model's parameters lie in the shared memory with worker 0's values.

    Layout of the shared memory, all parameters of one kind after the other, each aligned::

        parameters | gradients of worker 0 | gradients of worker 1 | ... | flags | losses

    Attributes:
        parameters: The trained parameters, in the model's order, tied ones once.
        flat: Each parameter as one dimension, in the order of its memory.
        gradients: ``gradients[worker][i]`` is that worker's gradient of parameter ``i``, in
            the shape and strides of the parameter.
        ready: uint8 of shape ``(workers, parameters)``: whether the step gave a gradient.
        losses: float64 of shape ``(workers,)``: each worker's part of the step's loss.
    """

    def __init__(self, model: nn.Module, group: LocalGroup) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        count = len(self.parameters)
        sizes = [_aligned(p.numel() * p.element_size()) for p in self.parameters]
        *offsets, total = accumulate(sizes, initial=0)

        blocks = group.share_bytes(total * (1 + group.size)).view(1 + group.size, total)
        small = group.share_bytes(group.size * (8 + count))
        self.losses = small[: 8 * group.size].view(torch.float64)
        self.ready = small[8 * group.size :].view(group.size, count)

        def flat(block: Tensor, index: int) -> Tensor:
            p = self.parameters[index]
            end = offsets[index] + p.numel() * p.element_size()
            return block[offsets[index] : end].view(p.dtype)

        self.flat = [flat(blocks[0], i) for i in range(count)]
        self.flat_gradients = [
            [flat(block, i) for i in range(count)] for block in blocks[1:].unbind()
        ]
        for parameter, memory in zip(self.parameters, self.flat, strict=True):
            shared = _like(parameter, memory)
            if group.local_rank == 0:
                shared.copy_(parameter.detach())
            parameter.data = shared
        self.gradients = [
            [_like(p, memory) for p, memory in zip(self.parameters, row, strict=True)]
            for row in self.flat_gradients
        ]
        group.barrier()


class GradientAverager:
    """Sums the replicas' gradients and updates the parameters, each replica its part.

    Collective: every replica of ``group`` builds one over equal models and optimizers, and calls
    `step` at every step. Each scales its loss by its share of the node batch, so that the sum of
    the gradients is the gradient of the mean.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, group: LocalGroup
    ) -> None:
        if isinstance(optimizer, torch.optim.LBFGS):
            raise UseCaseError(
                "optimizer LBFGS evaluates the model several times per step: "
                "use --strategies sequential, or another optimizer"
            )
        self._group = group
        self._shared = SharedParameters(model, group)
        self._mine_ready = self._shared.ready[group.local_rank]
        self._mine_flat = self._shared.flat_gradients[group.local_rank]
        self._pieces = list(_pieces_of(optimizer, self._shared, group))
        self._optimizer = optimizer
        _hand_over(optimizer, self._shared.parameters, self._pieces)
        mine = self._shared.gradients[group.local_rank]
        for index, parameter in enumerate(self._shared.parameters):
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._keep(index, mine[index])
            )

    def start_step(self) -> None:
        """Forget the last step's gradients."""
        self._mine_ready.zero_()

    def step(self, loss: float) -> float:
        """Sum the gradients of all replicas and update the parameters.

        Args:
            loss: This replica's part of the loss, scaled by its share of the node batch.

        Returns:
            The sum over all replicas: the mean loss over the node batch, the same for each.
        """
        self._shared.losses[self._group.local_rank] = loss
        self._group.barrier()
        node_loss = float(self._shared.losses.sum())
        ready = self._shared.ready.tolist()
        for piece in self._pieces:
            self._sum_piece(piece, ready)
        self._optimizer.step()
        for piece in self._pieces:
            piece.owned.grad = None  # autograd would add the next step's to it
        self._group.barrier()
        return node_loss

    def _sum_piece(self, piece: _Piece, ready: list[list[int]]) -> None:
        """Leave the sum over all replicas in this replica's own buffer.

        A parameter that no replica has a gradient for is left alone by the optimizer, as it
        would be in one process: momentum does not move it.
        """
        mine = piece.gradient
        sources = [worker for worker, flags in enumerate(ready) if flags[piece.index]]
        piece.owned.grad = piece.gradient_in_shape if sources else None
        if sources and not self._mine_ready[piece.index]:
            mine.zero_()
        for worker in sources:
            if worker != self._group.local_rank:
                mine.add_(
                    self._shared.flat_gradients[worker][piece.index][piece.start : piece.stop]
                )

    def _keep(self, index: int, buffer: Tensor) -> Any:
        """Make the hook that moves a fresh gradient into this replica's buffer.

        Autograd hands over the tensor that it has just computed; had the buffer been the
        parameter's ``.grad`` from the start, it would have to be cleared, read and added to.
        """
        ready = self._mine_ready

        def keep(parameter: Tensor) -> None:
            gradient = parameter.grad
            assert gradient is not None
            if gradient.is_sparse:
                gradient = gradient.to_dense()
            if ready[index]:
                buffer.add_(gradient)
            else:
                buffer.copy_(gradient)
                ready[index] = 1
            parameter.grad = None

        return keep


@dataclass(slots=True, kw_only=True)
class _Piece:
    """A part of one parameter that one worker sums and updates."""

    index: int
    start: int
    stop: int
    owned: Tensor
    """What the optimizer updates."""
    gradient: Tensor
    """The same elements of this worker's gradient buffer, one-dimensional."""
    gradient_in_shape: Tensor
    """The same memory in the shape of ``owned``."""


def _pieces_of(
    optimizer: torch.optim.Optimizer, shared: SharedParameters, group: LocalGroup
) -> Iterator[_Piece]:
    """Cut the parameters into equal parts and give this worker's.

    Inside tensors where the optimizer allows it: one tensor can be most of a model.
    """
    sizes = [memory.numel() for memory in shared.flat]
    elementwise = type(optimizer) in _ELEMENTWISE
    cut = _cut_anywhere if elementwise else _cut_between
    mine = shared.flat_gradients[group.local_rank]
    in_shape = shared.gradients[group.local_rank]
    for index, start, stop in cut(sizes, group.local_rank, group.size):
        gradient = mine[index][start:stop]
        yield _Piece(
            index=index,
            start=start,
            stop=stop,
            owned=nn.Parameter(shared.flat[index][start:stop])
            if elementwise
            else shared.parameters[index],
            gradient=gradient,
            gradient_in_shape=gradient if elementwise else in_shape[index],
        )


def _cut_anywhere(sizes: list[int], part: int, parts: int) -> Iterator[tuple[int, int, int]]:
    """Give ``(tensor, start, stop)`` of one of ``parts`` equal parts of all elements."""
    total = sum(sizes)
    low, high = total * part // parts, total * (part + 1) // parts
    for index, (first, last) in enumerate(pairwise(accumulate(sizes, initial=0))):
        start, stop = max(low, first), min(high, last)
        if start < stop:
            yield index, start - first, stop - first


def _cut_between(sizes: list[int], part: int, parts: int) -> Iterator[tuple[int, int, int]]:
    """Give whole tensors, the largest first to the worker that has least so far."""
    loads = [0] * parts
    for index in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        lightest = loads.index(min(loads))
        loads[lightest] += sizes[index]
        if lightest == part:
            yield index, 0, sizes[index]


def _hand_over(
    optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter], pieces: list[_Piece]
) -> None:
    """Let the optimizer update the pieces in place of the parameters it was made with.

    The groups with their settings stay. State that it made beforehand (Adagrad does) is cut as
    the parameters are.
    """
    position = {id(parameter): index for index, parameter in enumerate(parameters)}
    pieces_of: dict[int, list[_Piece]] = {}
    for piece in pieces:
        pieces_of.setdefault(piece.index, []).append(piece)
    early_state = dict(optimizer.state)
    optimizer.state.clear()
    for group in optimizer.param_groups:
        owned: list[Tensor] = []
        for parameter in group["params"]:
            for piece in pieces_of.get(position.get(id(parameter), -1), ()):
                owned.append(piece.owned)
                if parameter in early_state:
                    optimizer.state[piece.owned] = _cut_state(
                        early_state[parameter], parameter, piece
                    )
        group["params"] = owned


def _cut_state(state: dict[str, Any], parameter: Tensor, piece: _Piece) -> dict[str, Any]:
    def cut(value: Any) -> Any:
        if isinstance(value, Tensor) and value.shape == parameter.shape:
            return _flat_view(value)[piece.start : piece.stop].view(piece.owned.shape).clone()
        return value.clone() if isinstance(value, Tensor) else value

    return {key: cut(value) for key, value in state.items()}


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _like(parameter: Tensor, memory: Tensor) -> Tensor:
    """View one-dimensional memory in the shape of a parameter, and in its strides if dense."""
    if _is_dense(parameter):
        return memory.as_strided(parameter.size(), parameter.stride())
    return memory.view(parameter.size())


def _flat_view(tensor: Tensor) -> Tensor:
    """Give the elements in the order of their memory."""
    if _is_dense(tensor):
        return tensor.detach().as_strided((tensor.numel(),), (1,))
    return tensor.detach().reshape(-1)


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements fill their memory without gaps or overlaps, in any order."""
    expected = 1
    dimensions = zip(tensor.stride(), tensor.size(), strict=True)
    for stride, size in sorted((s, n) for s, n in dimensions if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True

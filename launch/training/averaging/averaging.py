"""Gradient averaging over the replicas of a node: by shared memory, each doing its part.

All replicas share one copy of the parameters, and each has a gradient buffer that the others
can read. A step is::

    worker 0   backward -> own buffer | sum and update part 0, chunk by chunk | next step
    worker 1   backward -> own buffer | sum and update part 1, chunk by chunk | next step
                                  barrier                                 barrier

No gradient is sent anywhere and no parameter is sent back: an all-reduce reads and writes
everything again on every worker, while here each byte is summed and updated by one worker. The
optimizer's state exists once, in the same parts (Rajbhandari et al., "ZeRO", 2020,
https://arxiv.org/abs/1910.02054, stage 1). The sum of a chunk never leaves the cache: two workers
with momentum SGD move 24 bytes per parameter through the memory, which is to read two gradients,
momentum and weight and to write the last two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from launch.checkpoints.training_state import OptimizerParts, OptimizerPiece, parameter_names
from launch.errors import UseCaseError
from launch.gradient_sync.node_channel.shared_state import DENSE, NO_GRADIENT
from launch.gradient_sync.worker_sync.reducer import CrossNodeReducer, gradient_kind
from launch.local_group.group import LocalGroup
from launch.local_group.shared_parameters import SharedParameters
from launch.training.averaging.chunks import (
    Chunk,
    Piece,
    UpdateGroup,
    assign_whole,
    cut_by_update_group,
    cut_evenly,
    merge_chunks,
)
from launch.training.averaging.clipping import GradientClipper, square_sum
from launch.training.averaging.final_gradients import FinalGradients
from launch.training.averaging.late_update import LateUpdate
from launch.training.averaging.locked_parameters import locks_hold
from launch.training.averaging.loss_sum import mean_of
from launch.training.averaging.noise_meter import NoiseMeter
from launch.training.averaging.piece_optimizer import PieceOptimizer
from launch.training.averaging.update_scope import UpdateScope, scope_of_class

CHUNK_BYTES = 4 << 20
"""Parameters of one call of the optimizer, for each thread.

The chunk's sum, weights and state, three to five times as much, should stay in the caches between
the optimizer's operations, and a call costs 15-30 us of Python. 57 M parameters, SGD with momentum,
two cores of a Zen 5 with 32 MiB of L3: 28, 28, 26, 21, 21, 22 ms a step with 1/4, 1/2, 1, 2, 4,
8 MiB; 26, 22, 19, 18, 17, 19 ms where the optimizer is fused.
"""


_NO_LOCKS = (
    "updates are not left to the next step, so more time is lost to the network: this PyTorch "
    "cannot lock parameters until their update"
)


class GradientAverager:
    """Sums the replicas' gradients and updates the parameters, each replica its part.

    Collective: every replica of ``group`` builds one over equal models and optimizers, and calls
    `start_step` and `step` in every step. Each scales its loss by its share of the node batch, so
    that the sum of the gradients is the gradient of the mean, or by a weight: see
    `launch.training.averaging.loss_sum.LossSum`.

    Between steps the optimizer's groups hold this replica's part, in pieces. During a step it is
    called for one chunk after the other and sees that chunk alone, unless hooks watch its steps:
    then it is called once with everything, as hooks expect.

    Args:
        clipper: Limits the norm of the gradient; its group holds all parts, other stages' too.
        reducer: The other nodes, where there are some. The node's rank then adds up the gradients,
            of this node's replicas and of the other nodes, and leaves the sum in the first buffer.
        may_defer_update: Whether `step` may leave updates to the next step, where there are other
            nodes: the forward passes are then made within `track_uses`. It does not with an
            optimizer that is not elementwise, a norm that has a limit, hooks, or parameters that
            are used in ways that cannot be seen.
        scope: What of the parameters the optimizer must see together; found by its class where it
            is left out.
        chunk_bytes: See `CHUNK_BYTES`, a multiple of `launch.local_group.shared_parameters`'
            alignment.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        group: LocalGroup,
        *,
        clipper: GradientClipper | None = None,
        reducer: CrossNodeReducer | None = None,
        may_defer_update: bool = False,
        scope: UpdateScope | None = None,
        chunk_bytes: int | None = None,
    ) -> None:
        self._group = group
        self._optimizer = optimizer
        self._clipper = clipper
        self._reducer = reducer
        self._shared = shared = SharedParameters(model, group)
        rank = group.local_rank
        scope = scope or scope_of_class(optimizer)
        self._is_elementwise = scope is UpdateScope.ELEMENT
        names = self._names(model)
        self._addresses: list[tuple[str, nn.Parameter, int]] = []
        if self._is_elementwise or group.size > 1:  # else any memory is as good
            pairs = zip(names, shared.parameters, strict=True)
            self._addresses = [(name, one, one.data_ptr()) for name, one in pairs]
        is_summed = reducer is not None  # by the node's rank, in the first buffer
        self._chunks: list[Chunk] = []
        update_groups: list[UpdateGroup] = []
        self._warning: str | None = None
        if self._is_elementwise:
            size = chunk_bytes or CHUNK_BYTES * torch.get_num_threads()
            may_defer = is_summed and may_defer_update and clipper is None
            has_locks = may_defer and locks_hold()
            if may_defer and not has_locks and rank == 0:
                self._warning = _NO_LOCKS
            if has_locks:
                update_groups = cut_by_update_group(shared, rank, size)
                self._chunks = [chunk for one in update_groups for chunk in one.chunks]
            else:
                self._chunks = list(cut_evenly(shared, rank, size, is_summed=is_summed))
            self._whole = merge_chunks(self._chunks, shared, 0 if is_summed else rank)
        else:
            is_alone = scope is UpdateScope.MODEL
            self._whole = assign_whole(shared, rank, is_summed=is_summed, is_alone=is_alone)
        self._pieces = PieceOptimizer(optimizer, shared.parameters, self._whole.pieces)
        self._kinds = shared.kinds[rank].numpy()
        self._mine = [shared.in_shape(shared.gradients[rank], i) for i in range(len(self._kinds))]
        self._indices: list[int] = []
        if reducer is not None:
            offers = zip(shared.parameters, self._mine, strict=True)
            self._indices = [reducer.register_gradient(p, gradient) for p, gradient in offers]
        self._final = FinalGradients(len(self._kinds))
        self._late: LateUpdate | None = None
        if update_groups and reducer is not None:
            self._late = LateUpdate(
                shared, names, update_groups, self._indices, group, reducer, self._pieces
            )
        self._is_begun = False
        self._meter: NoiseMeter | None = None
        for index, parameter in enumerate(shared.parameters):
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                self._make_hook(index)
            )

    @property
    def has_other_nodes(self) -> bool:
        """Whether there are other nodes to average with."""
        return self._reducer is not None

    def start_step(self, passes: int | None = None) -> None:
        """Forget the last step's gradients.

        Args:
            passes: Backward passes that this step has here: a gradient that has been in all of them
                is final, and other nodes may have it while the rest is computed. ``None`` where
                they are not known.
        """
        self._is_begun = False
        self._final.start_step(passes)

    def measure_noise(self, meter: NoiseMeter) -> None:
        """Let a meter see the averages; and where there are other nodes exchange what it offers."""
        self._meter = meter
        if self._late is not None:
            self._late.meter = meter

    def gradients(self) -> list[Tensor]:
        """List the gradients of this replica, before `step` sums them."""
        return [one for one, kind in zip(self._mine, self._kinds, strict=True) if kind]

    def step(self, loss: float, weight: float | None = None, *, is_full: bool = True) -> float:
        """Sum the gradients of all replicas and update the parameters.

        Args:
            loss: This replica's part of the loss, scaled as its gradients are.
            weight: Of that part: gradients and loss are divided by the sum of all. ``None`` on
                every replica where that is 1.
            is_full: Whether the step was not the rest of an epoch, smaller than the others.

        Returns:
            The mean loss over all samples, the same for each.

        Raises:
            UseCaseError: A parameter was given other memory.
        """
        self._begin()
        self._check_memory()
        for kind, gradient in zip(self._kinds, self._mine, strict=True):
            if kind == NO_GRADIENT:
                gradient.zero_()  # so that whoever sums need not ask
        loss_sum, weight_sum, kinds = self._agree(loss, weight or 0.0, is_full=is_full)
        mean_loss, scale = mean_of(loss_sum, None if weight is None else weight_sum)
        if scale == 0:  # nothing in this step has a weight
            kinds = [NO_GRADIENT] * len(kinds)
        if self._late is not None and self._late.can_defer:
            self._late.defer(kinds, scale)
            return mean_loss
        if self._reducer is not None:
            self._reducer.finish()
        self._update(kinds, scale)
        if self._late is not None:
            self._late.learn()
        self._group.barrier()
        return mean_loss

    def track_uses(self) -> AbstractContextManager[object]:
        """Update each parameter in this context before it is used.

        The forward pass of a step belongs in it, since `step` may leave updates to the next one.

        Raises:
            UseCaseError: A parameter is used unseen before its update.
        """
        return nullcontext() if self._late is None else self._late.track_uses()

    def finish(self) -> None:
        """Make the updates that the last `step` has left to the next. Collective."""
        if self._late is not None:
            self._late.finish()

    def take_warning(self) -> str | None:
        """Return what a user should know of the last step, once."""
        warning, self._warning = self._warning, None
        return warning if self._late is None else self._late.take_warning()

    def describe_optimizer(self, model: nn.Module) -> OptimizerParts:
        """Name what the optimizer keeps here, for a checkpoint.

        Args:
            model: Gives the names: the one that was given to the constructor, or one around it.
        """
        names = self._names(model)
        return OptimizerParts(
            optimizer=self._optimizer,
            names=[[names[index] for index in group] for group in self._pieces.groups],
            pieces=[
                OptimizerPiece(
                    name=names[piece.index],
                    parameter=self._shared.parameters[piece.index],
                    start=piece.start,
                    owned=piece.owned,
                )
                for piece in self._whole.pieces
            ],
        )

    def _names(self, model: nn.Module) -> list[str]:
        name_of = parameter_names(model)
        return [name_of[id(parameter)] for parameter in self._shared.parameters]

    def _begin(self) -> None:
        """Begin with this step's gradients, in the memory of the last ones."""
        if not self._is_begun:
            self.finish()
            self._kinds[:] = NO_GRADIENT
            self._is_begun = True

    def _check_memory(self) -> None:
        """Check that each parameter, none of which is locked now, is where updates are made."""
        for name, parameter, address in self._addresses:
            if parameter.data_ptr() != address:
                raise UseCaseError(
                    "the model or its optimizer puts other memory in the place of parameter "
                    f"{name!r}, where updates do not reach it: change it in place, as with copy_()"
                )

    def _agree(
        self, loss: float, weight: float, *, is_full: bool
    ) -> tuple[float, float, list[int]]:
        """Sum losses and weights over all replicas, and find the highest kind of each gradient."""
        if self._reducer is None:
            sums, rank = self._shared.sums, self._group.local_rank
            sums[rank, 0], sums[rank, 1] = loss, weight
            self._group.barrier()
            loss_sum, weight_sum = sums.sum(0).tolist()
            return loss_sum, weight_sum, self._shared.kinds.amax(0).tolist()
        if self._late is not None:
            self._late.check_memory()
        if self._meter is not None and self._meter.needs_exchange:
            self._reducer.offer_noise(self._meter.offer())
        loss_sum, weight_sum = self._reducer.agree_on_step(
            loss, weight, self._kinds.tolist(), self._indices, is_full=is_full
        )
        if self._meter is not None and self._meter.needs_exchange:
            self._meter.take(self._reducer.noise_sums())
        return loss_sum, weight_sum, self._reducer.global_kinds(self._indices)

    @torch.no_grad()
    def _update(self, kinds: Sequence[int], scale: float | None) -> None:
        """Sum and update this replica's part.

        Args:
            kinds: Of the gradient of each parameter, over all replicas. One that has none is left
                alone by the optimizer, as it would be in one process: momentum does not move it.
            scale: Factor of the summed gradients, ``None`` for 1.
        """
        if len(self._chunks) < 2 or self._pieces.has_hooks:
            factor = self._clip([self._whole], scale)
            self._sum(self._whole, factor, kinds)
            if self._whole.pieces or self._is_elementwise:
                # Even where this part is empty: a schedule expects to see a step.
                self._pieces.step()
            else:
                self._pieces.pretend_step()  # a norm over no parameters may be an error
            self._whole.drop_gradients()
            return
        factor = self._clip(self._chunks, scale)
        with self._pieces.in_parts() as step:
            for chunk in self._chunks:
                self._sum(chunk, factor, kinds)
                step(chunk.pieces)
                chunk.drop_gradients()

    def _sum(self, chunk: Chunk, factor: float | None, kinds: Sequence[int]) -> None:
        """Give the pieces of a chunk their gradients, summed unless they are, and scaled."""
        for span in chunk.spans:
            if self._clipper is not None and factor is not None:
                torch.mul(span.own, factor, out=span.total)
                continue
            span.sum_into(span.total)
            if factor is not None:
                span.total.mul_(factor)
        if self._clipper is None and self._meter is not None and self._meter.awaits_average:
            self._meter.add_average(span.total for span in chunk.spans)
        for piece in chunk.pieces:
            piece.owned.grad = self._gradient(piece, kinds[piece.index])

    def _clip(self, chunks: Sequence[Chunk], scale: float | None) -> float | None:
        """Leave the sums in this replica's own buffer, and give the factor to scale them by.

        With them in the buffer the other replicas' gradients are read once, not twice. Nothing
        is summed where the norm has no limit.
        """
        if self._clipper is None:
            return scale
        squares = 0.0
        factor = 1.0 if scale is None else scale
        for chunk in chunks:
            for span in chunk.spans:
                span.sum_into(span.own)
                squares += square_sum([span.own])
        squares *= factor**2
        if self._meter is not None and self._meter.awaits_average:
            self._meter.add_average_squares(squares)
        return self._clipper.factor(squares) * factor

    def _gradient(self, piece: Piece, kind: int) -> Tensor | None:
        if kind == NO_GRADIENT:
            return None
        if kind == DENSE or self._is_elementwise:
            return piece.gradient
        return piece.gradient.to_sparse(kind)

    def _make_hook(self, index: int) -> Callable[[nn.Parameter], None]:
        """Make the hook that moves a fresh gradient into this replica's buffer.

        Autograd hands over the tensor that it has just computed; had the buffer been the
        parameter's ``.grad`` from the start, it would have to be cleared, read and added to.
        """
        kinds, buffer, reducer = self._kinds, self._mine[index], self._reducer
        number = self._indices[index] if reducer is not None else None

        def store_gradient(parameter: nn.Parameter) -> None:
            self._begin()
            if self._late is not None:
                self._late.check_seen(parameter)
            gradient = parameter.grad
            assert gradient is not None
            kind = gradient_kind(gradient)
            dense = gradient.to_dense() if gradient.is_sparse else gradient
            if kinds[index]:
                buffer.add_(dense)
            else:
                buffer.copy_(dense)
            kinds[index] = max(kinds[index], kind)
            parameter.grad = None
            if reducer is not None and number is not None and self._final.count(index):
                reducer.mark_ready(number)

        return store_gradient

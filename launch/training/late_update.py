"""When is a parameter updated? Where other nodes train too: when the next step first uses it.

When a backward pass ends the sums of its last gradients are still on their way. A worker that waits
for them leaves its cores idle; one that begins the next forward pass, with the layers whose sums
are there, hides the network behind that pass as well. Nothing else is computed: what uses a
parameter finds it updated.

Uses are seen by PyTorch's own means, `torch.overrides.TorchFunctionMode`: whatever function of
torch is given a parameter, by whatever module. What goes past it, such as a scripted module, an
extension in C++ or a `torch.autograd.Function`, shows in the first steps, in the graph that
autograd records: then every step ends with its update, even where other uses are seen, since nobody
knows which comes first. Where it shows later only, by the gradient of a parameter that nobody
seemed to use, that step fails. What is not seen is what autograd does not record: the use of a
tensor that shares a parameter's memory and was kept from one step to the next, such as
``parameter.detach()``, and what goes past these functions without gradients. It may find the values
of the step before.

Source of the idea: Peng et al., "A Generic Communication Scheduler for Distributed DNN Training
Acceleration", 2019, https://doi.org/10.1145/3341301.3359642.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from launch.errors import UseCaseError
from launch.exchange.board import NO_GRADIENT
from launch.exchange.peers import Peers
from launch.training.chunks import Chunk, Stretch
from launch.training.group import LocalGroup
from launch.training.piece_optimizer import PieceOptimizer
from launch.training.recorded_uses import RecordedUses, tensors_in
from launch.training.shared_parameters import SharedParameters

_WHOLE_STEPS = 2
"""First steps that end with their update: schedules of learning rates warn where their optimizer
has made none yet, and what is compiled in the first step runs unseen from the second on only."""

_LOOK_S = 0.0005
"""Sleep between two looks for a sum, or for another worker's part of an update."""


class LateUpdate:
    """Updates parameters in the middle of the next step, each before its first use.

    Collective: every worker of ``group`` makes one. The first steps end with their update, and
    show whether uses are seen.

    Args:
        shared: The parameters of the node.
        stretches: Which of them are updated together, and this worker's part.
        indices: Of each parameter, as the peers count.
        group: The workers.
        peers: Know which sums are there.
        pieces: What the optimizer updates.
    """

    def __init__(
        self,
        shared: SharedParameters,
        stretches: Sequence[Stretch],
        indices: Sequence[int],
        group: LocalGroup,
        peers: Peers,
        pieces: PieceOptimizer,
    ) -> None:
        self._stretches = stretches
        self._parameters = [[shared.parameters[i] for i in one.parameters] for one in stretches]
        self._by_index = np.empty(len(indices), np.int64)
        """Stretch of each parameter, as the peers count."""
        for number, one in enumerate(stretches):
            self._by_index[[indices[i] for i in one.parameters]] = number
        self._stretch_of = {
            id(parameter): number
            for number, parameters in enumerate(self._parameters)
            for parameter in parameters
        }
        marks = group.share_bytes(8 * group.size * (1 + len(stretches))).view(torch.int64)
        marks = marks.view(group.size, 1 + len(stretches))
        self._blind = marks[:, 0].numpy()
        """Of each worker, whether it has used parameters unseen."""
        self._updated = marks[:, 1:].numpy()
        """Latest step whose update each worker has made of its part of each stretch."""
        self._group = group
        self._peers = peers
        self._pieces = pieces
        self._kinds: Sequence[int] = ()
        self._settings: Sequence[dict[str, Any]] = ()
        self._step = 0
        self._own: dict[int, None] = {}
        """Stretches of which this worker has not updated its part, in order."""
        self._awaited: set[int] = set()
        """Stretches that are not known to be updated by all workers."""
        self._is_pending = False
        """Whether something of the last step is left to be done."""
        self._seen: set[int] = set()
        """Parameters whose use was seen in this step."""
        self._recorded = RecordedUses(shared.parameters)
        """In the first steps."""
        self._whole_steps = 0
        self._is_watching = False
        self._has_checked = self._has_missed = False

    @property
    def is_possible(self) -> bool:
        """Whether an update may be left to the next step, and nobody expects it before."""
        return not (self._is_learning or self._blind.any() or self._pieces.is_watched)

    @property
    def _is_learning(self) -> bool:
        return self._whole_steps < _WHOLE_STEPS

    def learn(self) -> None:
        """Take note of a step that ended with its update. Collective in the first of them."""
        if self._is_learning:
            self._blind[self._group.local_rank] = self._has_missed or not self._has_checked
            self._group.barrier()
            self._whole_steps += 1

    def put_off(self, kinds: Sequence[int]) -> None:
        """Leave the update of the step that was just agreed on to the next one.

        Args:
            kinds: Of the gradient of each parameter, over all nodes.
        """
        self._kinds, self._settings = kinds, self._pieces.settings()
        self._step += 1
        self._own = dict.fromkeys(range(len(self._stretches)))
        self._awaited = set(self._own)
        self._is_pending = True

    def watch(self) -> AbstractContextManager[object]:
        """See to it that whatever uses a parameter in this context finds it updated."""
        self._seen.clear()
        self._recorded.clear()
        self._is_watching = self._is_pending or self._is_learning
        return _Watch(self) if self._is_watching else nullcontext()

    def check_use(self, parameter: nn.Parameter) -> None:
        """Hold a parameter that has a gradient in this step against what was seen of its use.

        Raises:
            UseCaseError: It was used unseen, and perhaps before its update.
        """
        self._has_checked = True
        if not self._is_watching or id(parameter) in self._seen:
            return
        self._has_missed = True
        if not self._is_learning:
            raise UseCaseError(
                "a parameter is used where PyTorch's Python functions are not, and was not in the "
                "first steps: use it there in every step, or train on one node"
            )

    def finish(self) -> None:
        """Update what is left, and wait until the other workers have. Nothing where all is done."""
        if not self._is_pending:
            return
        for number in sorted(self._awaited):
            self._settle(number)
        self._peers.finish()
        self._is_pending = False

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Call a function of torch, with what it is given updated."""
        given = (*args, *named.values())
        for tensor in tensors_in(given):
            if isinstance(tensor, nn.Parameter):
                self._prepare(tensor)
        if not self._is_learning:
            return function(*args, **named)
        return self._check_call(function, args, named)

    def _check_call(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Call a function, and hold the graph before and after it against what was seen."""
        given = (*args, *named.values())
        used_before = self._recorded.new_behind(given)
        result = function(*args, **named)
        used_by_it = self._recorded.new_behind((*given, result))
        self._has_missed |= bool(used_before or used_by_it - self._seen)
        return result

    def _prepare(self, parameter: nn.Parameter) -> None:
        self._seen.add(id(parameter))
        number = self._stretch_of.get(id(parameter))
        if number is not None and number in self._awaited:
            self._settle(number)

    def _settle(self, number: int) -> None:
        """Wait for a stretch to be updated by all; meanwhile do what they may wait for."""
        while not self._is_settled(number):
            # Workers may need stretches in other orders: no one waits with its own part undone.
            if not self._update_first([number, *self._own]):
                with self._peers.waiting(for_node=number not in self._own):
                    time.sleep(_LOOK_S)
        self._awaited.remove(number)
        for parameter in self._parameters[number]:
            torch.autograd.graph.increment_version(parameter)

    def _is_settled(self, number: int) -> bool:
        return number not in self._own and bool((self._updated[:, number] >= self._step).all())

    def _update_first(self, numbers: Iterable[int]) -> bool:
        """Update this worker's part of the first of these whose sums are there."""
        is_summed = np.ones(len(self._stretches), np.bool_)
        is_summed[self._by_index[~self._peers.summed()]] = False
        for number in numbers:
            if number in self._own and is_summed[number]:
                self._update(self._stretches[number].chunks)
                del self._own[number]
                self._updated[self._group.local_rank, number] = self._step
                return True
        return False

    @torch.no_grad()
    def _update(self, chunks: Sequence[Chunk]) -> None:
        # Not in the precision of the forward pass, in the middle of which this may be.
        with torch.autocast("cpu", enabled=False), self._pieces.in_parts(self._settings) as step:
            for chunk in chunks:
                for piece in chunk.pieces:
                    has_gradient = self._kinds[piece.index] != NO_GRADIENT
                    piece.owned.grad = piece.gradient if has_gradient else None
                step(chunk.pieces)
                for piece in chunk.pieces:
                    piece.owned.grad = None


class _Watch(TorchFunctionMode):
    """Looks at what torch's functions are called with."""

    def __init__(self, late: LateUpdate) -> None:
        super().__init__()
        self._late = late

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = kwargs or {}
        if torch.compiler.is_compiling():  # what is compiled runs unseen
            return function(*args, **named)
        return self._late.call(function, args, named)

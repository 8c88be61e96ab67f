"""Updates that wait for the next step: each parameter is updated before its first use there.

Only where other nodes train too. When a backward pass ends, the sums of its last gradients are
still on their way. A worker that waits for them leaves its cores idle. One that begins the next
forward pass, with the layers whose sums are there, hides the network behind that pass as well.
Nothing else is computed: what uses a parameter finds it updated.

Uses are seen by PyTorch's own means, `torch.overrides.TorchFunctionMode`: whatever function of
torch is given a parameter, by whatever module. A use that goes past it does not find old values,
except one by a bare address that an extension in C++ has kept from an earlier call without a tensor
for it, which PyTorch forbids:

* The first steps end with their update. Autograd's graph shows in them what used a parameter
  unseen, such as a scripted module, an extension in C++ or a `torch.autograd.Function`; a
  `TorchDispatchMode` shows what did so without a graph. Then no update is late in this training,
  even where other uses of the parameter are seen, since nobody knows which comes first.
* After each step, no update is late from then on where a tensor keeps the memory of a parameter,
  such as ``parameter.detach()``, or where the memory was given to other programs, such as NumPy.
* Until it is updated a parameter is locked, see `locked_parameters`: a use that is unseen for the
  first time in a later step fails.

So each late update is safe whatever the first steps have shown: they only tell which trainings
would fail. An alternative, to fill the memory with NaN until its use is seen, needs a second pass
to compare with, as NaN vanishes in comparisons and integers; a second pass changes what a model
counts; and several workers share the memory.

Source of the idea: Peng et al., "A Generic Communication Scheduler for Distributed DNN Training
Acceleration", 2019, https://doi.org/10.1145/3341301.3359642.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from enum import IntEnum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from launch.errors import UseCaseError
from launch.gradient_sync.node_channel.shared_state import NO_GRADIENT
from launch.gradient_sync.worker_sync.reducer import CrossNodeReducer
from launch.local_group.group import LocalGroup
from launch.local_group.shared_parameters import SharedParameters
from launch.system.memory_fence import fence
from launch.training.averaging.chunks import Chunk, UpdateGroup
from launch.training.averaging.locked_parameters import LockedParameters
from launch.training.averaging.noise_meter import NoiseMeter
from launch.training.averaging.piece_optimizer import PieceOptimizer
from launch.training.averaging.recorded_uses import RecordedUses, tensors_in
from launch.training.averaging.use_trackers import OperatorTracker, UseTracker

_PROBATION_STEPS = 2
"""First steps that end with their update: schedules of learning rates warn where their optimizer
has made none yet, and what is compiled in the first step runs unseen from the second on only."""

_POLL_S = 0.0005
"""Sleep between two looks for a sum, or for another worker's part of an update."""

_GIVING_MEMORY = frozenset(
    {
        torch.Tensor.data_ptr,
        torch.Tensor.untyped_storage,
        torch.Tensor.storage,
        torch.Tensor.numpy,
        torch.Tensor.__array__,
        torch.Tensor.__dlpack__,
    }
)
"""Functions after which PyTorch no longer knows who reads a tensor's memory."""


class _Reason(IntEnum):
    """Why no update is late any more."""

    UNSEEN = 1
    SHARED = 2
    GIVEN = 3
    UNTESTED = 4


_REASONS = {
    _Reason.UNSEEN: (
        "{} is used past PyTorch's Python functions, as by a scripted module, by an "
        "autograd.Function or by a view from an earlier step"
    ),
    _Reason.SHARED: "a tensor that is kept from step to step shares the memory of {}",
    _Reason.GIVEN: "the model gives the memory of {} to other programs, such as NumPy",
    _Reason.UNTESTED: "a worker had no samples in the first steps",
}

_NOTICE = "updates are not left to the next step, so more time is lost to the network: {}"

_LOCKED = (
    "{} is used before its update, in a way that the first steps did not show: call its numel() "
    "in forward() before, or train on one host"
)


class LateUpdate:
    """Updates parameters in the middle of the next step, each before its first use.

    Collective: every worker of ``group`` makes one. The first steps end with their update, and
    show whether uses are seen.
    """

    def __init__(
        self,
        shared: SharedParameters,
        names: Sequence[str],
        update_groups: Sequence[UpdateGroup],
        indices: Sequence[int],
        group: LocalGroup,
        reducer: CrossNodeReducer,
        pieces: PieceOptimizer,
    ) -> None:
        self._names = [f"parameter {name!r}" for name in names]
        self._locked = LockedParameters(shared, [_LOCKED.format(name) for name in self._names])
        self._number = {id(parameter): n for n, parameter in enumerate(shared.parameters)}
        self._parameters = shared.parameters
        self._update_groups = update_groups
        self._by_index = np.empty(len(indices), np.int64)
        """Update group of each parameter, as the nodes count."""
        self._update_group_of: dict[int, int] = {}
        for number, one in enumerate(update_groups):
            self._by_index[[indices[i] for i in one.parameters]] = number
            for i in one.parameters:
                self._update_group_of[id(shared.parameters[i])] = number
        memory = group.share_bytes(8 * group.size * (3 + len(update_groups))).view(torch.int64)
        progress = memory.view(group.size, 3 + len(update_groups)).numpy()
        self._since, self._reasons = progress[:, 0], progress[:, 1:3]
        """Of each worker, the step from which it wants no late updates; with the reason and the
        number of a parameter. A worker may be a step ahead of another."""
        self._updated = progress[:, 3:]
        """Latest step whose update each worker has made of its part of each group."""
        self._group = group
        self._reducer = reducer
        self._pieces = pieces
        self._kinds: Sequence[int] = ()
        self._scale: float | None = None
        self._settings: Sequence[dict[str, Any]] = ()
        self._step = 0
        """Steps that were agreed on."""
        self._own: dict[int, None] = {}
        """Groups of which this worker has not updated its part, in order."""
        self._awaited: set[int] = set()
        """Groups that are not known to be updated by all workers."""
        self._is_pending = False
        """Whether something of the last step is left to be done."""
        self._seen: set[int] = set()
        """Parameters whose use was seen in this step."""
        self._recorded = RecordedUses(shared.parameters)
        """In the first steps."""
        self.meter: NoiseMeter | None = None
        """Sees the averages."""
        self._whole_steps = 0
        self._has_checked = self._has_told = False

    @property
    def can_defer(self) -> bool:
        """Whether an update may be left to the next step, and nobody expects it before."""
        return not (self._is_learning or self._is_off or self._pieces.has_hooks)

    @property
    def _is_learning(self) -> bool:
        return self._whole_steps < _PROBATION_STEPS

    @property
    def _is_off(self) -> bool:
        return bool(self._agreed().any())

    def _agreed(self) -> NDArray[np.bool_]:
        """Tell of each worker whether it wants no late updates, and all know of it."""
        agreed: NDArray[np.bool_] = (self._since > 0) & (self._since <= self._step)
        return agreed

    def take_warning(self) -> str | None:
        """Return why updates are no longer late, once and from the first worker alone."""
        if self._has_told or self._group.local_rank or not self._is_off:
            return None
        self._has_told = True
        # Not of a wish for the next step: its reason may not be readable here yet.
        reason, number = self._reasons[self._agreed().argmax()].tolist()
        return _NOTICE.format(_REASONS[_Reason(reason)].format(self._names[number]))

    def _turn_off(self, reason: _Reason, number: int = 0) -> None:
        """Want no late updates from this step on, which is not agreed on yet."""
        mine = self._group.local_rank
        if not self._since[mine]:
            self._reasons[mine] = reason, number
            self._since[mine] = self._step + 1

    def check_memory(self) -> None:
        """Look for what keeps the memory of parameters. Before the step is agreed on."""
        if not self._is_off and (number := self._locked.find_shared()) is not None:
            self._turn_off(_Reason.SHARED, number)
        self._step += 1

    def learn(self) -> None:
        """Take note of a step that ended with its update. Collective in the first of them."""
        if self._is_learning:
            self._whole_steps += 1
            if not (self._is_learning or self._has_checked):
                self._turn_off(_Reason.UNTESTED)
            self._group.barrier()

    def defer(self, kinds: Sequence[int], scale: float | None) -> None:
        """Leave the update of the step that was just agreed on to the next one.

        Args:
            kinds: Of the gradient of each parameter, over all nodes.
            scale: Factor of the gradients, ``None`` for 1.
        """
        self._kinds, self._settings, self._scale = kinds, self._pieces.settings(), scale
        self._own = dict.fromkeys(range(len(self._update_groups)))
        self._awaited = set(self._own)
        self._is_pending = True
        self._locked.lock()

    @contextmanager
    def track_uses(self) -> Iterator[None]:
        """Update each parameter in this context before it is used.

        Raises:
            UseCaseError: A parameter is used unseen before its update.
        """
        self._seen.clear()
        self._recorded.clear()
        try:
            with ExitStack() as trackers:
                if self._is_pending or self._is_learning:
                    trackers.enter_context(UseTracker(self.call))
                if self._whole_steps == _PROBATION_STEPS - 1:
                    # Not in all of them: nothing is compiled within it, so it hides compiled code.
                    trackers.enter_context(OperatorTracker(self.call_operator))
                yield
        except RuntimeError as error:
            if (message := self._locked.find_message(error)) is not None:
                raise UseCaseError(message) from error
            raise

    def check_seen(self, parameter: nn.Parameter) -> None:
        """Hold a parameter that has a gradient in this step against what was seen of its use."""
        self._has_checked = True
        if self._is_learning:
            self._expect_seen(parameter)

    def call_operator(
        self, operator: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Call an operator of torch; hold what it is given against what was seen."""
        with torch._C.DisableTorchFunction():  # which would take the look for a use
            for tensor in tensors_in((*args, *named.values())):
                if (number := self._locked.find_owner(tensor)) is not None:
                    self._expect_seen(self._parameters[number])
        return operator(*args, **named)

    def _expect_seen(self, parameter: nn.Parameter) -> None:
        if id(parameter) not in self._seen:
            self._turn_off(_Reason.UNSEEN, self._number[id(parameter)])

    def finish(self) -> None:
        """Update what is left, and wait until the other workers have. Nothing where all is done."""
        if not self._is_pending:
            return
        for number in sorted(self._awaited):
            self._wait_for_update(number)
        self._reducer.finish()
        self._is_pending = False

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Call a function of torch, with what it is given updated."""
        if torch.compiler.is_compiling():  # what is compiled runs unseen
            return function(*args, **named)
        given = (*args, *named.values())
        for tensor in tensors_in(given):
            if isinstance(tensor, nn.Parameter):
                self._seen.add(id(tensor))
                number = self._update_group_of.get(id(tensor))
                if number is not None and number in self._awaited:
                    self._wait_for_update(number)
        if function in _GIVING_MEMORY and (number := self._locked.find_owner(given[0])) is not None:
            self._turn_off(_Reason.GIVEN, number)
        if not self._is_learning:
            return function(*args, **named)
        # The graph before the call and after it is held against what was seen.
        unseen = self._recorded.new_behind(given)
        result = function(*args, **named)
        unseen |= self._recorded.new_behind((*given, result)) - self._seen
        for parameter in unseen:
            self._turn_off(_Reason.UNSEEN, self._number[parameter])
        return result

    def _wait_for_update(self, number: int) -> None:
        """Wait for a group to be updated by all; meanwhile do what they may wait for."""
        while not self._is_updated(number):
            # Workers may need groups in other orders: no one waits with its own part undone.
            if (ready := self._find_ready([number, *self._own])) is not None:
                self._update_own(ready)
                continue
            # One context for the whole wait: who looks for a worker that hangs finds it waiting.
            with self._reducer.track_wait(for_node=number not in self._own):
                while not self._is_updated(number) and self._find_ready(self._own) is None:
                    time.sleep(_POLL_S)
        fence()  # the numbers before the parameters
        self._awaited.remove(number)
        numbers = self._update_groups[number].parameters
        self._locked.unlock(numbers)
        for i in numbers:
            torch.autograd.graph.increment_version(self._parameters[i])

    def _is_updated(self, number: int) -> bool:
        return number not in self._own and bool((self._updated[:, number] >= self._step).all())

    def _find_ready(self, numbers: Iterable[int]) -> int | None:
        """Find the first of these groups whose sums are there and whose own part is not updated."""
        is_summed = np.ones(len(self._update_groups), np.bool_)
        is_summed[self._by_index[~self._reducer.find_summed()]] = False
        return next((n for n in numbers if n in self._own and is_summed[n]), None)

    def _update_own(self, number: int) -> None:
        """Update this worker's part of a group."""
        self._update(self._update_groups[number].chunks)
        del self._own[number]
        fence()  # the parameters before the number that says that they are updated
        self._updated[self._group.local_rank, number] = self._step

    @torch.no_grad()
    def _update(self, chunks: Sequence[Chunk]) -> None:
        # Not in the precision of the forward pass, in the middle of which this may be.
        with torch.autocast("cpu", enabled=False), self._pieces.in_parts(self._settings) as step:
            for chunk in chunks:
                for span in chunk.spans:
                    if self._scale is not None:
                        span.total.mul_(self._scale)
                if self.meter is not None and self.meter.awaits_average:
                    self.meter.add_average(span.total for span in chunk.spans)
                for piece in chunk.pieces:
                    has_gradient = self._kinds[piece.index] != NO_GRADIENT
                    piece.owned.grad = piece.gradient if has_gradient else None
                step(chunk.pieces)
                chunk.drop_gradients()

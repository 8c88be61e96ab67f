"""Cross-node reducer: a worker reports final gradients and waits for their sum."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.gradient_layout import GradientLocation, TensorLayout
from launch.gradient_sync.node_channel.shared_state import DENSE, NO_GRADIENT, SharedStepState
from launch.system.event_counter import await_events
from launch.system.memory_fence import fence


class CrossNodeReducer:
    """Sums one participant's gradients with those of the other nodes.

    A participant is a worker process, or a replica on a thread.

    A step is: `mark_ready` for each gradient as it becomes final, then `agree_on_step` and
    `finish`, between which the next step may begin with what `find_summed` gives.

    Args:
        state: Of this node.
        participant: Its number in the state.
        descriptors: Wake the rank, and wait for it.
        offset_of: Gives the offset of a tensor in the memory that the rank sees.
        model: Whole model, whose trained parameters count in their order.

    Attributes:
        locations: Of the registered gradients.
    """

    def __init__(
        self,
        state: SharedStepState,
        participant: int,
        descriptors: SharedDescriptors,
        offset_of: Callable[[Tensor], int],
        model: nn.Module,
    ) -> None:
        self._state = state
        self._participant = participant
        self.locations: list[GradientLocation] = []
        self._descriptors = descriptors
        self._offset_of = offset_of
        self._index = {id(p): index for index, p in enumerate(trained_parameters(model))}
        self._names = [name for name, p in model.named_parameters() if p.requires_grad]
        self._gradients: dict[int, Tensor] = {}
        self._is_registered = np.zeros(len(state.summed), np.bool_)
        self._ready = state.ready[participant]
        self._kinds = state.kinds[participant]
        self._sum_number = 1
        self._missing: Counter[int] | None = None
        """Gradients of each bucket that are not ready yet; ``None`` until the step gives the first
        that is in one. Counted anew in each step: the rank makes the buckets during the first."""
        self._waited_s = 0.0

    def register_gradient(self, parameter: nn.Parameter, gradient: Tensor) -> int:
        """Register where the gradients of a parameter will be, and their sum; return its number.

        Where several participants register one parameter, their gradients are added, and the sum
        over all nodes is left in the gradient of the lowest participant.

        Args:
            parameter: Of the model.
            gradient: In the group's shared memory, in the shape of the parameter.
        """
        index = self._index[id(parameter)]
        self._gradients[index] = gradient
        self._is_registered[index] = True
        self.locations.append(
            GradientLocation(
                index=index,
                participant=self._participant,
                offset=self._offset_of(gradient) if gradient.numel() else 0,
                layout=TensorLayout.of(gradient),
            )
        )
        return index

    def gradients(self, *, only_sums: bool = False) -> Iterator[tuple[str, Tensor]]:
        """Give the registered gradients with the names of their parameters.

        Args:
            only_sums: Leave out those whose sums are in the gradients of others. It is known once
                the rank has replied to a request.
        """
        for index, gradient in self._gradients.items():
            if not only_sums or self._state.owners[index] == self._participant:
                yield self._names[index], gradient

    def mark_ready(self, index: int) -> None:
        """Set the ready flag of a final gradient: the rank may sum it while others are computed.

        The rank is woken where it is the last one that this participant has for a bucket: to find
        nothing to do takes it 50 us of a core on which a worker computes.
        """
        fence()  # the gradient before its flag
        self._ready[index] = self._sum_number
        if self._is_last_of_bucket(int(self._state.buckets[index])):
            os.eventfd_write(self._descriptors.wakeup, 1)

    def _is_last_of_bucket(self, number: int) -> bool:
        """Count a gradient whose flag was just set; return whether its bucket lacks no other."""
        if number == 0:
            return True
        if self._missing is None:
            is_missing = self._is_registered & (self._ready < self._sum_number)
            numbers: list[int] = self._state.buckets[is_missing].tolist()
            self._missing = Counter(numbers)
        else:
            self._missing[number] -= 1
        return self._missing[number] <= 0  # negative if the rank made the bucket after the count

    def agree_on_step(
        self,
        loss: float,
        weight: float,
        kinds: Sequence[int],
        indices: Sequence[int],
        *,
        is_full: bool,
    ) -> tuple[float, float]:
        """Set every ready flag, and wait until all nodes have done so.

        The sums may still be in flight: see `find_summed` and `finish`.

        Args:
            loss: This participant's part of the loss.
            weight: Of that part.
            kinds: Of its gradients in this step.
            indices: Their parameters.
            is_full: Whether the step was not the rest of an epoch, smaller than the others.

        Returns:
            The sums of the loss and of the weights.
        """
        self._kinds[:] = 0
        self._kinds[np.asarray(indices, dtype=np.int64)] = kinds
        self._state.losses[self._participant] = loss
        self._state.weights[self._participant] = weight
        self._state.is_full[self._participant] = is_full
        self._state.waited_s[self._participant], self._waited_s = self._waited_s, 0.0
        fence()  # all of these before their flags
        self._ready[:] = self._sum_number
        self._state.done[self._participant] = self._sum_number
        os.eventfd_write(self._descriptors.wakeup, 1)
        await_events(self._descriptors.agreements[self._sum_number % 2])
        loss, weight = self._state.global_loss.tolist()
        return loss, weight

    def offer_noise(self, numbers: Sequence[float]) -> None:
        """Set what `noise_sums` adds up over all nodes, before `agree_on_step`."""
        self._state.noise[self._participant] = numbers

    def noise_sums(self) -> list[float]:
        """Return the sums of what was offered, after `agree_on_step`."""
        sums: list[float] = self._state.global_noise.tolist()
        return sums

    def find_summed(self) -> NDArray[np.bool_]:
        """Return for each parameter whether its sum has arrived, after `agree_on_step`."""
        is_summed: NDArray[np.bool_] = np.greater_equal(self._state.summed, self._sum_number)
        fence()  # the flags before the sums
        return is_summed

    @contextmanager
    def track_wait(self, *, for_node: bool) -> Iterator[None]:
        """Record that this participant waits in this context, instead of computing.

        Args:
            for_node: Whether it waits for others of its node, and not for sums.
        """
        started = time.perf_counter()
        self._state.waits_for_node[self._participant] = for_node
        try:
            yield
        finally:
            self._state.waits_for_node[self._participant] = 0
            self._waited_s += time.perf_counter() - started

    def finish(self) -> None:
        """Wait for every sum. Gradients of the next step may only be written after it."""
        await_events(self._descriptors.sums[self._sum_number % 2])
        self._sum_number += 1
        self._missing = None

    def global_kinds(self, indices: Sequence[int]) -> list[int]:
        """Return the highest kind over all nodes of some gradients of the last sum."""
        kinds: list[int] = self._state.global_kinds[np.asarray(indices, dtype=np.int64)].tolist()
        return kinds

    def find_kinds(self, parameters: Sequence[nn.Parameter]) -> list[int]:
        """Return the same for parameters of the model, whichever participant registered them."""
        return self.global_kinds([self._index[id(parameter)] for parameter in parameters])


def trained_parameters(model: nn.Module) -> list[nn.Parameter]:
    """List the parameters whose gradients are summed, in the same order on every node."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def gradient_kind(gradient: Tensor | None) -> int:
    """Return the kind of a gradient, see `SharedStepState`."""
    if gradient is None:
        return NO_GRADIENT
    return gradient.sparse_dim() if gradient.is_sparse else DENSE

"""Staging buffer: a copy of a device's gradients in memory that the rank sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch
from torch import Tensor, nn

from launch.gradient_sync.node_channel.shared_state import DENSE, NO_GRADIENT
from launch.gradient_sync.worker_sync.reducer import CrossNodeReducer, gradient_kind
from launch.local_group.alignment import aligned
from launch.local_group.group import LocalGroup
from launch.training.averaging.final_gradients import FinalGradients
from launch.training.averaging.loss_sum import LossSum


class GradientStagingBuffer:
    """Sums gradients, which are equal on this node's workers, with those of the other nodes.

    Collective: every worker of ``group`` makes one over equal modules. The first one copies its
    gradients to the host; all copy the sum back. The host's memory is pinned for a GPU. A gradient
    is copied as soon as it is final, while the GPU still computes, and is in flight to the other
    nodes while the next is copied.

    Args:
        module: Has the parameters that this worker trains.
        group: Workers with equal gradients.
        reducer: Of this worker.
        gives_sparse: Whether the sum is sparse where the gradient is sparse on all nodes, for
            optimizers that need it so. It is sent with all its zeros.
    """

    def __init__(
        self,
        module: nn.Module,
        group: LocalGroup,
        reducer: CrossNodeReducer,
        *,
        gives_sparse: bool,
    ) -> None:
        # The last layers' gradients are final first.
        self._parameters = [p for p in module.parameters() if p.requires_grad][::-1]
        self._reducer = reducer
        self._gives_sparse = gives_sparse
        self._is_first = group.local_rank == 0
        sizes = [aligned(p.nbytes) for p in self._parameters]
        memory = group.share_bytes(sum(sizes))
        self._device = self._parameters[0].device if self._parameters else torch.device("cpu")
        if self._device.type == "cuda":
            _pin(memory)
        self._copies = [
            part[: p.nbytes].view(p.dtype).view(p.shape)
            for part, p in zip(torch.split(memory, sizes), self._parameters, strict=True)
        ]
        self._final = FinalGradients(len(self._parameters))
        self._is_sent = [False] * len(self._parameters)
        self._indices: list[int] = []
        if self._is_first:
            offers = zip(self._parameters, self._copies, strict=True)
            self._indices = [reducer.register_gradient(p, copy) for p, copy in offers]
            self._copier = _HostCopier(self._device, reducer)
            for number, parameter in enumerate(self._parameters):
                parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    self._send_when_final(number)
                )

    def start_step(self, passes: int | None) -> None:
        """Begin a step.

        Args:
            passes: Backward passes after which a gradient of this worker is final; ``None`` where
                it is not before `all_reduce`. So it must be where there are several workers: a slow
                one may still read the last step's sums.
        """
        self._final.start_step(passes)

    @torch.no_grad()
    def all_reduce(self, part: LossSum, *, is_full: bool) -> LossSum:
        """Replace the gradients of the parameters by the sums over all nodes.

        Args:
            part: This node's part of the loss; the first worker's counts.
            is_full: Whether the step was not the rest of an epoch, smaller than the others.

        Returns:
            The sum over all nodes.
        """
        loss, weight, kinds = 0.0, 0.0, list[int]()
        if self._is_first:
            loss, weight, kinds = self._send_rest(part)
        loss, weight = self._reducer.agree_on_step(
            loss, weight, kinds, self._indices, is_full=is_full
        )
        self._reducer.finish()
        self._receive(self._reducer.find_kinds(self._parameters))
        return LossSum(loss, None if part.weight is None else weight)

    def _send_rest(self, part: LossSum) -> tuple[float, float, list[int]]:
        """Send what is not final yet; give loss, weight and kinds of gradient of this node."""
        kinds = [gradient_kind(parameter.grad) for parameter in self._parameters]
        for number, is_sent in enumerate(self._is_sent):
            if not is_sent:
                self._send(number)
        self._is_sent = [False] * len(self._parameters)
        self._copier.finish()
        # The loss comes last: to read it is to wait until the GPU has computed everything.
        return float(part.loss), part.weight or 0.0, kinds

    def _send(self, number: int) -> None:
        gradient = self._parameters[number].grad
        self._copier.copy(gradient, self._copies[number], self._indices[number])
        self._is_sent[number] = True

    def _send_when_final(self, number: int) -> Callable[[nn.Parameter], None]:
        def hook(parameter: nn.Parameter) -> None:
            if self._final.count(number):
                self._send(number)

        return hook

    def _receive(self, kinds: Sequence[int]) -> None:
        for parameter, copy, kind in zip(self._parameters, self._copies, kinds, strict=True):
            # A parameter without a gradient on any node has none, as in one process.
            if kind == NO_GRADIENT:
                parameter.grad = None
                continue
            if self._gives_sparse and kind != DENSE:
                parameter.grad = copy.to(self._device, non_blocking=True).to_sparse(kind)
                continue
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(copy, non_blocking=True)
        if self._device.type == "cuda":
            # The memory is written again by the next step, which may begin before these copies.
            torch.cuda.current_stream().synchronize()


class _HostCopier:
    """Copies gradients to the host, and sets their ready flags in the order of the copies."""

    def __init__(self, device: torch.device, reducer: CrossNodeReducer) -> None:
        self._reducer = reducer
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._in_flight: deque[tuple[int, torch.cuda.Event]] = deque()

    @torch.no_grad()
    def copy(self, gradient: Tensor | None, copy: Tensor, index: int) -> None:
        """Start to copy a final gradient, and set the ready flags of finished copies."""
        if gradient is None:
            copy.zero_()
            self._reducer.mark_ready(index)
            return
        dense = gradient.to_dense() if gradient.is_sparse else gradient
        if self._stream is None:
            copy.copy_(dense)
            self._reducer.mark_ready(index)
            return
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            copy.copy_(dense, non_blocking=True)
        dense.record_stream(self._stream)
        # Waited for without burning a core.
        arrival: torch.cuda.Event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        arrival.record(self._stream)
        self._in_flight.append((index, arrival))
        while self._in_flight and self._in_flight[0][1].query():  # type: ignore[no-untyped-call]
            self._reducer.mark_ready(self._in_flight.popleft()[0])

    def finish(self) -> None:
        """Wait for the other copies, and set each one's ready flag."""
        while self._in_flight:
            index, arrival = self._in_flight.popleft()
            arrival.synchronize()
            self._reducer.mark_ready(index)


def _pin(memory: Tensor) -> None:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    # As a number: torch has a name for success alone.
    status = int(runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), 0))
    if status != 0:  # slower without, and right all the same
        print(f"memory for the gradients cannot be pinned: CUDA error {status}")  # noqa: T201
        # CUDA tells the next launch of a kernel of it once more, whichever that is.
        with suppress(RuntimeError):
            torch.ones((), device="cuda")

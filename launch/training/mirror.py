"""How do gradients of a device reach the other nodes? By a copy in memory that the rank sees."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from launch.exchange.board import DENSE, NO_GRADIENT
from launch.exchange.peers import Peers
from launch.training.alignment import aligned
from launch.training.group import LocalGroup


class GradientMirror:
    """Gradients that this node's workers agree on already, summed with those of the other nodes.

    Collective: every worker of ``group`` makes one over equal parameters. The first one copies its
    gradients to the host; all copy the sum back. The host's memory is pinned for a GPU, and a
    gradient is on its way to the other nodes while the next is copied.

    Args:
        parameters: Trained by this worker.
        group: Those with equal gradients.
        peers: The other nodes.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], group: LocalGroup, peers: Peers) -> None:
        # The last layers' gradients are there first.
        self._parameters = [p for p in parameters if p.requires_grad][::-1]
        self._peers = peers
        self._is_first = group.local_rank == 0
        sizes = [aligned(p.numel() * p.element_size()) for p in self._parameters]
        memory = group.share_bytes(sum(sizes))
        self._device = self._parameters[0].device if self._parameters else torch.device("cpu")
        if self._device.type == "cuda":
            _pin(memory)
        self._copies = [
            part[: p.numel() * p.element_size()].view(p.dtype).view(p.shape)
            for part, p in zip(torch.split(memory, sizes), self._parameters, strict=True)
        ]
        offered = zip(self._parameters, self._copies, strict=True) if self._is_first else ()
        self._indices = [peers.offer(parameter, copy) for parameter, copy in offered]

    @torch.no_grad()
    def sum_up(self, loss: float) -> float:
        """Bring the gradients of all nodes, summed, to the parameters.

        Args:
            loss: This node's part of the mean loss; counted where the worker is the first.

        Returns:
            The sum of it.
        """
        kinds = [NO_GRADIENT if p.grad is None else DENSE for p in self._parameters]
        if self._is_first:
            self._send()
        mine = kinds if self._is_first else []
        total = self._peers.sum_up(loss if self._is_first else 0.0, mine, self._indices)
        self._receive(self._peers.kinds_of(self._parameters))
        return total

    def _send(self) -> None:
        arrivals = []
        for index, parameter, copy in zip(
            self._indices, self._parameters, self._copies, strict=True
        ):
            if parameter.grad is None:
                copy.zero_()
            else:
                gradient = parameter.grad
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                copy.copy_(dense, non_blocking=True)
            if self._device.type == "cuda":
                arrivals.append((index, torch.cuda.current_stream().record_event()))
        for index, arrival in arrivals:
            arrival.synchronize()
            self._peers.mark(index)

    def _receive(self, kinds: Sequence[int]) -> None:
        for parameter, copy, kind in zip(self._parameters, self._copies, kinds, strict=True):
            # What no node has a gradient for is left alone, as it would be in one process.
            if kind == NO_GRADIENT:
                parameter.grad = None
                continue
            if parameter.grad is None or parameter.grad.is_sparse:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(copy, non_blocking=True)
        if self._device.type == "cuda":
            # The memory is written again by the next step, which may begin before these copies.
            torch.cuda.current_stream().synchronize()


def _pin(memory: Tensor) -> None:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    status = runtime.cudaHostRegister(memory.data_ptr(), memory.numel(), 0)
    if int(status) != 0:  # slower without, and right all the same
        print(f"memory for the gradients cannot be pinned: CUDA error {status}")  # noqa: T201

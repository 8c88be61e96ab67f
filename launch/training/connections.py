"""Connections by which the workers of a node send tensors: torch's process groups.

On CPUs over gloo, bound to the loopback interface; tensors of GPUs over NCCL, from device to
device. The workers find one another by the anonymous file of their group, without a port or path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import distributed

from launch.errors import LostWorkerError
from launch.local_group.group import LocalGroup

_OWN_FAULTS = ("ncclInvalidUsage", "ncclInvalidArgument", "ncclUnhandledCudaError")
"""NCCL's errors about a wrong call of this worker, or about its own GPU."""


@contextmanager
def translate_lost_workers() -> Iterator[None]:
    """Turn an error about a broken connection into a `LostWorkerError`.

    Raises:
        LostWorkerError: The worker at the other end is gone.
    """
    try:
        yield
    except RuntimeError as error:
        if not _is_loss(error):
            raise
        raise LostWorkerError(f"another worker is gone: {error}") from error


def _is_loss(error: RuntimeError) -> bool:
    text = str(error)
    if isinstance(error, distributed.DistBackendError):
        return not any(fault in text for fault in _OWN_FAULTS)
    # gloo's exceptions reach Python as RuntimeErrors that begin with the place in its source.
    return "/gloo/" in text


class Connections:
    """The process groups of this worker.

    Collective: every worker of ``group`` opens them once, makes the same sub-groups in the same
    order, and closes them when none sends any more.

    Args:
        group: The workers of this node.
        device: Of this worker's tensors.
    """

    @translate_lost_workers()
    def __init__(self, group: LocalGroup, device: torch.device) -> None:
        assert group.rendezvous_path is not None, "threads of one process need no sockets"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=distributed.FileStore(  # type: ignore[attr-defined]
                group.rendezvous_path, group.size
            ),
            rank=group.local_rank,
            world_size=group.size,
        )
        self._local_rank = group.local_rank

    @translate_lost_workers()
    def sub_group(self, parts: Sequence[Sequence[int]]) -> distributed.ProcessGroup:
        """Divide all workers into groups; return this worker's. Collective.

        Args:
            parts: Local ranks of each group; every worker is in exactly one.
        """
        mine: distributed.ProcessGroup | None = None
        for ranks in parts:
            made = distributed.new_group(list(ranks))
            if self._local_rank in ranks:
                assert isinstance(made, distributed.ProcessGroup)
                mine = made
        assert mine is not None, "every worker is in a group"
        return mine

    def close(self) -> None:
        """Close the connections. A worker that still waits at the other end fails."""
        distributed.destroy_process_group()

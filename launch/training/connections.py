"""How do the workers of a node send tensors to one another? By torch's process groups.

On CPUs over gloo, bound to the loopback interface; tensors of GPUs over NCCL, from device to
device. The workers find one another by the anonymous file of their group: no port, no path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import distributed

from launch.errors import LostWorkerError
from launch.training.group import LocalGroup

_OWN_FAULTS = ("ncclInvalidUsage", "ncclInvalidArgument", "ncclUnhandledCudaError")
"""What NCCL says of a call that this worker made wrongly, or of its own GPU."""


@contextmanager
def losing_workers() -> Iterator[None]:
    """Turn an error about a connection that broke into one that says what it means.

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
    order, and closes them when nobody sends any more.

    Args:
        group: The workers of this node.
        device: Where this worker's tensors are.
    """

    @losing_workers()
    def __init__(self, group: LocalGroup, device: torch.device) -> None:
        assert group.meeting_path is not None, "threads of one process need no sockets"
        if device.type == "cuda":
            torch.cuda.set_device(device)
        distributed.init_process_group(
            "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
            store=distributed.FileStore(  # type: ignore[attr-defined]
                group.meeting_path, group.size
            ),
            rank=group.local_rank,
            world_size=group.size,
        )
        self._local_rank = group.local_rank

    @losing_workers()
    def sub_group(self, parts: Sequence[Sequence[int]]) -> distributed.ProcessGroup:
        """Part all workers into groups; give the one that this worker is in. Collective.

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
        """End the connections. Whoever still waits at their other end fails."""
        distributed.destroy_process_group()

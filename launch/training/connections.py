"""Connections by which the workers of a node send tensors: torch's process groups.

On CPUs over gloo, bound to the loopback interface; tensors of GPUs over NCCL, from device to
device. The workers find one another by the anonymous file of their group, without a port or path.

gloo takes whoever connects to a port for the worker that it expects there, and any program of the
machine can connect to a loopback port. So each new connection is used first for a token that only
the worker at its other end can know.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, distributed

from launch.errors import LaunchError, LostWorkerError
from launch.local_group.group import LocalGroup

_OWN_FAULTS = ("ncclInvalidUsage", "ncclInvalidArgument", "ncclUnhandledCudaError", "shm/nccl-")
"""In NCCL's errors about a wrong call of this worker, its own GPU or this machine's /dev/shm."""

_TOKEN_BYTES = 16


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
        self._tokens = _share_tokens(group)
        self._check_peers(distributed.group.WORLD, range(group.size))

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
                self._check_peers(made, ranks)
        assert mine is not None, "every worker is in a group"
        return mine

    def _check_peers(self, group: distributed.ProcessGroup | None, ranks: Sequence[int]) -> None:
        """Check that each connection of a new group leads to the worker that it should. Collective.

        Raises:
            LaunchError: One leads to another program.
        """
        peers = [rank for rank in ranks if rank != self._local_rank]
        mine = self._tokens[self._local_rank]
        sending = [distributed.isend(mine[peer], peer, group=group) for peer in peers]
        received = torch.empty(len(peers), _TOKEN_BYTES, dtype=torch.uint8)
        for row, peer in zip(received, peers, strict=True):
            distributed.recv(row, peer, group=group)
        for work in sending:  # first: a worker that ends at once would leave its peer without one
            if work is not None:
                work.wait()
        for row, peer in zip(received, peers, strict=True):
            expected = self._tokens[peer, self._local_rank]
            if not secrets.compare_digest(row.numpy().tobytes(), expected.numpy().tobytes()):
                raise LaunchError(
                    f"the connection of worker {self._local_rank} to worker {peer} leads to "
                    "another program of this machine: start again"
                )

    def close(self) -> None:
        """Close the connections. A worker that still waits at the other end fails."""
        distributed.destroy_process_group()


def _share_tokens(group: LocalGroup) -> Tensor:
    """Draw a token for each direction of each pair of workers, which only they can read.

    One for each direction: what a worker sends to a stranger is of no use to that one.
    """
    tokens = group.share_bytes(group.size * group.size * _TOKEN_BYTES)
    if group.local_rank == 0:
        drawn = bytearray(secrets.token_bytes(tokens.numel()))
        tokens.copy_(torch.frombuffer(drawn, dtype=torch.uint8))
    group.barrier()
    return tokens.view(group.size, group.size, _TOKEN_BYTES)

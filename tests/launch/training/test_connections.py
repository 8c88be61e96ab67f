"""Whom a worker is connected to, and what is said of a connection that broke."""

from __future__ import annotations

import os
import signal
import sys
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from torch import distributed

from launch.errors import LaunchError, LostWorkerError
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.local_group.group import LocalProcessGroup
from launch.training.connections import Connections, translate_lost_workers

NCCL = "NCCL error in: ProcessGroupNCCL.cpp:1, NCCL version 2.27.5\n"


def fail(error: Exception) -> None:
    with translate_lost_workers():
        raise error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection reset"),
        distributed.DistBackendError(f"{NCCL}ncclRemoteError: A call failed possibly due to"),
        distributed.DistBackendError(f"{NCCL}ncclSystemError: System call failed"),
    ],
    ids=["gloo", "NCCL, remote", "NCCL, system"],
)
def test_a_connection_that_broke_is_a_lost_worker(error):
    with pytest.raises(LostWorkerError, match="another worker is gone: "):
        fail(error)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("the loss is beyond me"),
        distributed.DistBackendError(f"{NCCL}ncclInvalidUsage: Duplicate GPU detected"),
        distributed.DistBackendError(f"{NCCL}ncclUnhandledCudaError: Call to CUDA failed."),
        distributed.DistBackendError(f"{NCCL}ncclSystemError: Error: /dev/shm/nccl-Ab3: No space"),
    ],
    ids=["not of a connection", "NCCL, usage", "NCCL, CUDA", "NCCL, shared memory"],
)
def test_a_fault_of_the_worker_itself_stays_what_it_is(error):
    with pytest.raises(type(error)) as raised:
        fail(error)
    assert raised.value is error


class Stranger(LocalProcessGroup):
    """A program that can connect, and cannot see the memory of the workers."""

    def share_bytes(self, num_bytes):
        super().share_bytes(num_bytes)
        return torch.zeros(num_bytes, dtype=torch.uint8)


def open_files() -> set[str]:
    return {str(file.readlink()) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()}


def connect(
    rank: int, kind: type[LocalProcessGroup], descriptors: SharedDescriptors, result
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    inherited = open_files()  # of the process that runs the tests
    try:
        opened = Connections(kind(rank, 2, (), descriptors), torch.device("cpu"))
        opened.sub_group([[0, 1]])
        rows = Path("/proc/self/net/tcp").read_text().splitlines()[1:]
        own = open_files() - inherited
        result.send({row.split()[1][:8] for row in rows if f"socket:[{row.split()[9]}]" in own})
    except LaunchError as error:
        result.send(str(error))
    signal.pause()  # until it is killed: its end would break the other one's connections


def connected(kinds: list[type[LocalProcessGroup]]) -> list[object]:
    """Give what became of two workers, each in a process of its own."""
    context, descriptors = get_context("fork"), SharedDescriptors.create()
    workers = []
    for rank, kind in enumerate(kinds):
        reading, writing = context.Pipe(duplex=False)
        process = context.Process(target=connect, args=(rank, kind, descriptors, writing))
        process.start()
        writing.close()
        workers.append((process, reading))
    try:
        return [reading.recv() for _, reading in workers]
    finally:
        for process, _ in workers:
            process.kill()
            process.join()
        descriptors.close()


def test_workers_connect_by_the_loopback_interface_alone():
    (loopback,) = {int.from_bytes(bytes([127, 0, 0, 1]), sys.byteorder)}
    assert connected([LocalProcessGroup, LocalProcessGroup]) == [{f"{loopback:08X}"}] * 2


def test_stranger_at_the_other_end_of_a_connection_is_refused():
    """The story: gloo takes whoever connects for the worker that it expects."""
    said = connected([LocalProcessGroup, Stranger])
    assert said[0] == (
        "the connection of worker 0 to worker 1 leads to another program of this machine: start "
        "again"
    )

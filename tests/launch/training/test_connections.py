"""What is said of a connection between workers that broke."""

from __future__ import annotations

import pytest
from torch import distributed

from launch.errors import LostWorkerError
from launch.training.connections import translate_lost_workers

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
    ],
    ids=["not of a connection", "NCCL, usage", "NCCL, CUDA"],
)
def test_a_fault_of_the_worker_itself_stays_what_it_is(error):
    with pytest.raises(type(error)) as raised:
        fail(error)
    assert raised.value is error

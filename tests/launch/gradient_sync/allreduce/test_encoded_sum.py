"""Sums of real ranks: the same bits on all of them, and in the end nothing is lost."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from ranks_here import said_by

from launch.gradient_sync.algorithms import algorithm_names
from launch.gradient_sync.wire_formats import wire_format_names

SUMS = """
import json, sys, zlib
import numpy as np
from mpi4py import MPI
from launch.gradient_sync.algorithms import algorithm_names
from launch.gradient_sync.allreduce.encoded_sum import make_sum
from launch.gradient_sync.wire_formats import wire_format_names

STEPS, SIZES = 6, (1, 5000, 3, 70_000, 1024, 2)
TYPES = (np.float32, np.float32, np.float64, np.float32, np.complex64, np.float32)
WEIGHTS = (0.5, 0.125, 0.375)
comm, found = MPI.COMM_WORLD, {}
for all_reduce in algorithm_names():
    for wire in wire_format_names():
        adder = make_sum(comm, all_reduce=all_reduce, wire=wire)
        random = np.random.default_rng(comm.rank)
        errors = [np.zeros(n * (1 + (t is np.complex64)), np.float32) for n, t in zip(SIZES, TYPES)]
        said, given = [np.zeros(n, complex) for n in SIZES], [np.zeros(n, complex) for n in SIZES]
        digest = 0
        for step in range(STEPS):
            blocks = [
                (WEIGHTS[comm.rank] * random.standard_normal(n)).astype(t)
                for n, t in zip(SIZES, TYPES)
            ]
            for total, block in zip(given, blocks):
                total += block
            waiting = list(zip(blocks, errors))
            while waiting or not adder.is_idle:
                while waiting and adder.has_capacity:
                    adder.start(*waiting.pop(0))
                adder.take_finished()
            for total, block in zip(said, blocks):
                total += block
                digest = zlib.crc32(block.tobytes(), digest)
        left = [e.view(np.complex64) if t is np.complex64 else e for e, t in zip(errors, TYPES)]
        off = []
        for total, own, rest in zip(said, given, left):
            owed = np.empty_like(total)
            comm.Allreduce(own - rest, owed)
            off.append(float(np.abs(total - owed).max()))
        found[f"{all_reduce} {wire}"] = [digest, max(off), adder.sent_bytes / STEPS]
sys.stdout.write(json.dumps(found) + "\\n")
"""
NUMBERS = 1 + 5000 + 3 * 2 + 70_000 + 1024 * 2 + 2
"""Of float32, but that double precision is sent as it is where that is exact."""


@cache
def sums_of(ranks: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said_by(ranks, SUMS)]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("wire", wire_format_names())
@pytest.mark.parametrize("all_reduce", algorithm_names())
def test_all_ranks_have_the_same_bits_and_what_is_not_in_them_is_in_the_errors(
    all_reduce, wire, ranks
):
    of_ranks = [found[f"{all_reduce} {wire}"] for found in sums_of(ranks)]
    assert len({digest for digest, _, _ in of_ranks}) == 1
    assert all(off < 2e-4 for _, off, _ in of_ranks)


@pytest.mark.parametrize(
    ("wire", "share"), [("fp32", 1.0), ("bf16", 0.5), ("int8", 0.252), ("top1", 0.02)]
)
def test_a_ring_sends_what_the_format_says(wire, share):
    for _, _, sent_bytes in (found[f"ring {wire}"] for found in sums_of(2)):
        assert sent_bytes == pytest.approx(4 * NUMBERS * share, rel=0.02)

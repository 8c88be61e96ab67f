"""Load of a service: readers that follow its pages, and a search on the same machine that writes.

The search is a stand-in: on each core a process computes the same step again and again, and one
stores progress and trials at the pace of a real search. Readers do what the pages' script does:
they follow the events and ask for their page again after a change, at most every few seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import Synchronized
from urllib.parse import urlsplit

import numpy as np
from _block import BenchError

from planner.records.progress import SearchProgress
from planner.store import Store
from planner.trials.result import TrialResult
from probes import codec

LEAST_S = 3.0
"""Between two looks of a reader at its page, as in planner/service/static/live.js."""

_PROGRESS_S, _TRIAL_EVERY, _START_S = 2.0, 4, 120.0
_SIDE = 192
_context = multiprocessing.get_context("spawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a server listens, and the token that it wants."""

    url: str
    token: str

    def request(self, path: str, more: str = "") -> bytes:
        """Give a request for a path, on a connection that stays, with more headers."""
        return (
            f"GET {path} HTTP/1.1\r\nHost: {urlsplit(self.url).netloc}\r\n"
            f"Authorization: Bearer {self.token}\r\n{more}\r\n"
        ).encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection."""
        parts = urlsplit(self.url)
        return await asyncio.open_connection(parts.hostname, parts.port, limit=2**20)


@dataclass(frozen=True, slots=True)
class Readers:
    """Readers that follow pages."""

    answers: Synchronized[int] = field(default_factory=lambda: _context.Value(ctypes.c_long, 0))
    errors: Synchronized[int] = field(default_factory=lambda: _context.Value(ctypes.c_long, 0))
    following: Synchronized[int] = field(default_factory=lambda: _context.Value(ctypes.c_long, 0))

    @contextmanager
    def reading(self, address: Address, paths: Sequence[str], count: int) -> Iterator[None]:
        """Let so many readers follow, in a process of their own."""
        self.following.value = 0
        process = _context.Process(target=_read_all, args=(self, address, list(paths), count))
        process.start()
        try:
            deadline_s = time.monotonic() + _START_S
            while self.following.value < count:
                if time.monotonic() > deadline_s:
                    raise BenchError(f"{self.following.value} of {count} readers have begun")
                time.sleep(0.05)
            yield
        finally:
            process.terminate()
            process.join()


def _read_all(readers: Readers, address: Address, paths: list[str], count: int) -> None:
    async def run() -> None:
        each = (_follow(readers, address, paths[n % len(paths)]) for n in range(count))
        await asyncio.gather(*each)

    asyncio.run(run())


async def _follow(readers: Readers, address: Address, path: str) -> None:
    try:
        events, to_events = await address.connect()
        to_events.write(address.request("/api/v1/events"))
        pages, to_pages = await address.connect()
        await _read_page(readers, address, path, pages, to_pages)
        readers.following.value += 1
        last_s = time.monotonic()
        while line := await events.readline():
            if not line.startswith(b"event: "):
                continue
            # Those that come meanwhile are in the page too.
            await asyncio.sleep(max(0.15, last_s + LEAST_S - time.monotonic()))
            with contextlib.suppress(TimeoutError):
                while await asyncio.wait_for(events.readline(), 0.01):
                    pass
            await _read_page(readers, address, path, pages, to_pages)
            last_s = time.monotonic()
    except (OSError, asyncio.IncompleteReadError):
        readers.errors.value += 1


async def _read_page(
    readers: Readers,
    address: Address,
    path: str,
    pages: asyncio.StreamReader,
    to_pages: asyncio.StreamWriter,
) -> None:
    to_pages.write(address.request(path, "X-ddlplan-refresh: 1\r\n"))
    head = await pages.readuntil(b"\r\n\r\n")
    length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-len"))
    await pages.readexactly(int(length.partition(b":")[2]))
    if head.split()[1] == b"200":
        readers.answers.value += 1
    else:
        readers.errors.value += 1


@dataclass(frozen=True, slots=True)
class StandInSearch:
    """A search that computes on all cores and stores what it finds."""

    steps: tuple[Synchronized[int], ...]
    writes: Synchronized[int]
    write_us: Synchronized[int]
    """Time of all writes."""

    slowest_us: Synchronized[int]

    @classmethod
    @contextmanager
    def running(
        cls, db: str, *, cores: int, job_id: int, study_id: int, trial: TrialResult
    ) -> Iterator[StandInSearch]:
        """Run it until the block ends."""
        made = [_context.Value(ctypes.c_long, 0) for _ in range(cores + 3)]
        search = cls(tuple(made[3:]), *made[:3])
        processes = [_context.Process(target=_compute, args=(count,)) for count in search.steps]
        processes.append(
            _context.Process(
                target=_write, args=(search, db, job_id, study_id, codec.encode(trial))
            )
        )
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # one core a process
        for process in processes:
            process.start()
        try:
            yield search
        finally:
            for process in processes:
                process.terminate()
                process.join()

    def wait_for_steps(self) -> None:
        """Wait until every process has made steps.

        Raises:
            BenchError: One makes none.
        """
        deadline_s = time.monotonic() + _START_S
        while any(count.value < 5 for count in self.steps):
            if time.monotonic() > deadline_s:
                raise BenchError(f"the search has made no steps in {_START_S:g} s")
            time.sleep(0.1)

    def rate(self, seconds: float) -> float:
        """Give its steps per second over a while."""
        before, began_s = sum(count.value for count in self.steps), time.monotonic()
        time.sleep(seconds)
        made = sum(count.value for count in self.steps) - before
        return made / (time.monotonic() - began_s)


def _compute(count: Synchronized[int]) -> None:
    matrix = np.full((_SIDE, _SIDE), 1 / _SIDE, dtype=np.float32)
    product = matrix
    while True:
        for _ in range(20):
            product = product @ matrix
        count.value += 1


def _write(search: StandInSearch, db: str, job_id: int, study_id: int, encoded: bytes) -> None:
    trial = codec.decode(encoded, TrialResult, source="trial")
    number = 0
    with Store.open(db) as store:
        while True:
            time.sleep(_PROGRESS_S)
            progress = SearchProgress(
                doing=f"racing 4 plans, round {number}",
                budget_s=300.0,
                left_s=max(0.0, 300.0 - number),
                trials=number // _TRIAL_EVERY,
                best_samples_per_s=100.0 + number,
            )
            number += 1
            began_s = time.perf_counter()
            store.jobs.set_progress(job_id, json.loads(codec.encode(progress)), study_id=study_id)
            if number % _TRIAL_EVERY == 0:
                store.studies.add_trial(study_id, trial)
            took_us = round(1e6 * (time.perf_counter() - began_s))
            search.writes.value += 1
            search.write_us.value += took_us
            search.slowest_us.value = max(search.slowest_us.value, took_us)

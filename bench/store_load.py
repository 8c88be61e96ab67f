"""Load on a store by many programs at once: what is lost, and how long each write takes.

Writers are processes that start together on a database that is still to be made, as searches of a
team would. Each stores trials one after the other, as fast as it can: far more than searches do,
which store one every few seconds. A quarter of them is killed by ``kill -9`` in the middle. Every
trial whose writer was told that it is stored must be there once, and no writer may see a lock.
Both on SQLite and on PostgreSQL, which is started for it as the tests do.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import selectors
import signal
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path

from _block import BenchError, Output, Result, begin, make_parser, percentile, run_bench
from postgres_server import PostgresServer, find_obstacle
from store_cases import STUDY, trial

from planner.store import Store
from planner.store.inspection import check_database

_WRITERS, _TRIALS = 32, 200
_TOLD = struct.Struct("qd")
"""What a writer says of a trial: its id, and how long storing it took."""

fork = multiprocessing.get_context("fork")


@dataclass(slots=True)
class Writer:
    """One process that writes."""

    process: multiprocessing.context.ForkProcess
    pipe: int
    dies_after: int | None
    """Acknowledged trials after which it is killed."""

    told: list[tuple[int, float]] = field(default_factory=list)


def main() -> int:
    """Load each kind of store."""
    parser = make_parser(__doc__)
    parser.add_argument("--kinds", default="SQLite,PostgreSQL", help="of stores, both by default")
    arguments, out = begin(parser)
    results: list[Result] = []
    for kind in arguments.kinds.split(","):
        with _empty_store(kind) as url:
            found = _load(kind, url, out)
        out.show(found)
        results += found
    return out.conclude(results)


@contextmanager
def _empty_store(kind: str) -> Iterator[str]:
    if kind == "SQLite":
        with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
            yield str(Path(folder, "planner.db"))
        return
    if kind != "PostgreSQL":
        raise BenchError(f"--kinds {kind}: use SQLite, PostgreSQL or both")
    if (obstacle := find_obstacle()) is not None:
        raise BenchError(obstacle)
    with PostgresServer(fsync="on") as server:
        yield server.make_database()


def _load(kind: str, url: str, out: Output) -> list[Result]:
    chance = random.Random(0)
    gate = fork.Event()
    writers = []
    for number in range(_WRITERS):
        reading, writing = os.pipe()
        process = fork.Process(target=_write, args=(url, number, gate, writing))
        process.start()
        os.close(writing)
        dies_after = chance.randrange(1, _TRIALS) if number % 4 == 0 else None
        writers.append(Writer(process, reading, dies_after))
    began = time.monotonic()
    gate.set()
    _follow(writers)
    took_s = time.monotonic() - began
    for writer in writers:
        writer.process.join()
    told = [one for writer in writers for one in writer.told]
    faults = _find_faults(url, writers)
    for fault in faults[:10]:
        out.say(f"{kind}: {fault}")
    times_s = [time_s for _, time_s in told]
    out.say(f"{kind}: {len(told)} trials acknowledged in {took_s:.1f} s")
    return [
        Result(f"{kind}: trials lost or doubled, writers that failed", len(faults), high=0),
        Result(f"{kind}: trials a second", len(told) / took_s),
        Result(f"{kind}: median of a write", percentile(times_s, 0.5), "s"),
        Result(f"{kind}: 99th percentile of a write", percentile(times_s, 0.99), "s", high=1),
        Result(f"{kind}: longest write", max(times_s), "s"),
    ]


def _write(url: str, number: int, gate: Event, pipe: int) -> None:
    gate.wait()
    with Store.open(url) as store:
        study_id = store.studies.get_or_create(STUDY)
        for each in range(_TRIALS):
            began = time.monotonic()
            added = store.studies.add_trial(study_id, trial(1000 * number + each, samples=24))
            os.write(pipe, _TOLD.pack(added.id, time.monotonic() - began))


def _follow(writers: list[Writer]) -> None:
    """Read what writers tell until all have ended, and kill those that are to die."""
    with selectors.DefaultSelector() as selector:
        for writer in writers:
            selector.register(writer.pipe, selectors.EVENT_READ, writer)
        while selector.get_map():
            for key, _ in selector.select():
                writer = key.data
                if not (told := os.read(writer.pipe, 1024 * _TOLD.size)):
                    selector.unregister(writer.pipe)
                    os.close(writer.pipe)
                writer.told += _TOLD.iter_unpack(told)
                if writer.dies_after is not None and len(writer.told) >= writer.dies_after:
                    os.kill(writer.process.pid, signal.SIGKILL)
                    writer.dies_after = None


def _find_faults(url: str, writers: list[Writer]) -> list[str]:
    faults = []
    for number, writer in enumerate(writers):
        expected = -signal.SIGKILL if number % 4 == 0 else 0
        if writer.process.exitcode != expected:
            faults.append(f"writer {number} ended with exit code {writer.process.exitcode}")
    with Store.open(url) as store:
        store.studies.get_or_create(STUDY)  # waits for what a killed one's server still does
        stored = {one.id: one.result.parameters["mark"] for one in store.studies.all_trials()}
    marks = Counter(stored.values())
    faults += [f"mark {mark} is stored {times} times" for mark, times in marks.items() if times > 1]
    for number, writer in enumerate(writers):
        for each, (trial_id, _) in enumerate(writer.told):
            if stored.get(trial_id) != 1000 * number + each:
                faults.append(f"trial {trial_id} of writer {number} is lost")
        extra = sum(1 for mark in marks if int(mark) // 1000 == number) - len(writer.told)
        if extra not in (0, int(number % 4 == 0)):
            faults.append(f"{extra} trials of writer {number} were not acknowledged")
    return faults + list(check_database(url).faults)


if __name__ == "__main__":
    run_bench(main)

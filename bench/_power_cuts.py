"""Cuts of the power at random moments of what SQLite writes."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from _block import Output, Result, show_faults
from _sqlite_writes import Disk, Recorder
from _store_samples import draw_transactions

from planner.errors import NoDatabaseError, PlannerError
from planner.store import Store
from planner.store.inspection import check_database

_TRANSACTIONS, _STATES_OF_A_PLACE = 150, 4


def _digest(path: Path) -> str:
    """Give the digest of everything in a database."""
    with closing(sqlite3.connect(path)) as connection:
        lines = "\n".join(connection.iterdump())
    return hashlib.sha256(lines.encode()).hexdigest()


def cut_power(count: int, out: Output) -> list[Result]:
    """Cut the power, and hold what is left against the state before and after."""
    chance = random.Random(0)
    recorder = Recorder()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        path = Path(folder, "planner.db")
        digests = ["nothing"]
        with recorder.record():
            store = Store.open(str(path))
        recorder.committed()
        digests.append(_digest(path))
        for transaction in draw_transactions(chance, _TRANSACTIONS):
            with recorder.record():
                transaction(store)
            recorder.committed()
            digests.append(_digest(path))
        out.say(f"{len(recorder.operations)} operations of {len(digests) - 1} transactions")
        places = sorted(
            chance.sample(range(len(recorder.operations)), -(-count // _STATES_OF_A_PLACE))
        )
        disk, acknowledged, done, cuts = Disk(), 0, 0, 0
        # `create_private` made the database's own name and synced it.
        disk.make("planner.db")
        for place in places:
            for operation in recorder.operations[done:place]:
                acknowledged += operation.kind == "committed"
                disk.apply(operation)
            done = place
            for _ in range(_STATES_OF_A_PLACE):
                cuts += 1
                files = disk.cut_power(chance)
                expected = digests[acknowledged : acknowledged + 2]
                if said := _find_loss(files, expected, Path(folder, "cut")):
                    faults.append(f"at operation {place} of transaction {acknowledged}: {said}")
    show_faults(faults, out)
    return [
        Result("cuts of the power", cuts),
        Result(
            "neither before nor after, or an acknowledged transaction lost", len(faults), high=0
        ),
    ]


def _find_loss(files: dict[str, bytes], expected: list[str], folder: Path) -> str | None:
    """Say what is wrong with what a cut has left; ``None`` where nothing is."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    path = folder / "planner.db"
    try:
        checked = check_database(str(path))
    except NoDatabaseError:
        return None if "nothing" in expected else "everything is lost"
    except PlannerError as error:
        return str(error)
    if checked.faults:
        return checked.faults[0]
    return None if _digest(path) in expected else "it is neither before nor after"

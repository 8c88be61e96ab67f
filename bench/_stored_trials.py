"""Trials that a database holds, and what is wrong with it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from planner.errors import NoDatabaseError, StoreError
from planner.store.inspection import check_database


def read_trials(path: str | Path) -> tuple[list[sqlite3.Row], list[str]]:
    """Give all trials with all their columns, and what is wrong; nothing where nothing is there."""
    try:
        checked = check_database(str(path))
    except NoDatabaseError:  # such as one without a table
        return [], []
    except StoreError as error:
        return [], [str(error)]
    with closing(sqlite3.connect(path, timeout=30)) as connection:
        connection.row_factory = sqlite3.Row
        rows = connection.execute("SELECT * FROM trials ORDER BY id").fetchall()
    return rows, list(checked.faults)


def find_doubles(trials: Sequence[sqlite3.Row], *columns: str) -> list[str]:
    """Say of which values of some columns there are several trials."""
    counts = Counter(tuple(trial[name] for name in columns) for trial in trials)
    found = [f"{' '.join(map(str, values))}: {n} trials" for values, n in counts.items() if n > 1]
    return [f"{', '.join(columns)} {one}" for one in found]

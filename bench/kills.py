"""Searches under `kill -9`: no finished trial may be lost or doubled, and no process be left.

Starts the same `ddlplan tune` again and again on one database and kills the tuner, and only it, at
random moments; then lets the command come to its end. After each kill, in a copy of the database
and of its journal, every trial that was on record before must be there, unchanged, and every one
that the tuner had reported as finished; within a study no number is used twice, and no plan was
searched twice; and no process of the search is left after a few seconds.
"""

from __future__ import annotations

import random
import re
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from _block import CASES, BenchError, Ddlplan, Result, begin, make_parser, run_bench, show_faults
from _marked_processes import MarkedProcesses
from _stored_trials import find_doubles, read_trials

_GONE_LIMIT_S = 10.0
"""The fork server sees at once that its owner is gone, and ends each worker with its group: this is
room for a busy machine, and for a server that is still loading torch."""
_POLL_S = 0.05
_ONE_IN = 4
_LATEST_FROM_START_S, _LATEST_IN_TRIALS_S = 10.0, 4.0
_END_LIMIT_S = 600.0
_FINISHED_TRIAL = re.compile(r"^ *\d+  +\S")
"""A line of the tuner's stderr, which it writes once the trial is stored: number, finding, plan."""

_CASE = f"{CASES}:TinyWithChild"

Record = dict[int, tuple[object, ...]]
"""Trials on record by their ids, with all columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """One run of the command, killed or not."""

    killed: bool
    exit_code: int
    reported: int
    """Trials that it said were finished."""
    gone_s: float | None
    """Time until none of its processes was left; ``None`` where some stayed."""
    stderr: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When the tuner is killed."""

    after_s: float
    in_trials: bool
    """Count from the first trial that this run reports, not from its start."""

    def __str__(self) -> str:
        return f"{self.after_s:.2f} s after {'a trial' if self.in_trials else 'its start'}"


class Search:
    """The search that is killed.

    Args:
        ddlplan: The command, with the database of the search.
    """

    def __init__(self, ddlplan: Ddlplan) -> None:
        self.database = ddlplan.database
        self.processes = MarkedProcesses()
        self._ddlplan = ddlplan
        self._log = ddlplan.folder / "stderr"

    def run(self, moment: Moment | None) -> Leg:
        """Run the command; kill it at a moment, unless it has ended by then.

        Raises:
            BenchError: It was to come to its end, or to its first trial, and did not.
        """
        words = ("tune", "--use-case", _CASE, "--trials", 80, "--budget", "3m")
        with self._log.open("wb") as errors:
            variables = self.processes.variables
            tuner = self._ddlplan.start(*words, errors=errors, variables=variables)
        try:
            self._wait(tuner, moment)
        finally:
            tuner.kill()
            tuner.wait()
        gone_s = self._wait_until_gone()
        return Leg(
            killed=tuner.returncode == -signal.SIGKILL,
            exit_code=tuner.returncode,
            reported=self._count_reported(),
            gone_s=gone_s,
            stderr=self._log.read_text(errors="replace"),
        )

    def _wait(self, tuner: subprocess.Popen[bytes], moment: Moment | None) -> None:
        """Wait for the moment, or the end of the command."""
        deadline = time.monotonic() + _END_LIMIT_S
        while moment is None or (moment.in_trials and not self._count_reported()):
            if tuner.poll() is not None:
                return
            if time.monotonic() > deadline:
                raise BenchError(f"the search was not so far after {_END_LIMIT_S:.0f} s")
            time.sleep(_POLL_S)
        with suppress(subprocess.TimeoutExpired):
            tuner.wait(moment.after_s)

    def _wait_until_gone(self) -> float | None:
        started = time.monotonic()
        while self.processes.find():
            if time.monotonic() - started > _GONE_LIMIT_S:
                self.processes.end()
                return None
            time.sleep(_POLL_S)
        return time.monotonic() - started

    def _count_reported(self) -> int:
        """Count the trials that the tuner said were finished."""
        lines = self._log.read_text(errors="replace").splitlines()
        return sum(1 for line in lines if _FINISHED_TRIAL.match(line))


def main() -> int:
    """Kill, check, and show."""
    arguments, out = begin(make_parser(__doc__, kills=(20, "how many")))
    dice = random.Random(0)
    rows: list[list[str]] = []
    faults: list[str] = []
    with _search() as search:
        record: Record = {}
        kills = ends = 0
        while kills < arguments.kills:
            moment = _draw(dice, kills)
            leg = search.run(moment)
            record, found = _check(search.database, record, leg, rows, str(moment))
            faults += found
            if leg.killed:
                kills += 1
                out.say(f"kill {kills} of {arguments.kills}, {moment}: {rows[-1][-1]}")
                continue
            ends += 1
            out.say(f"came to its end before {moment}, goes on: {rows[-1][-1]}")
            if ends > arguments.kills:
                raise BenchError("the search hardly ever lives until it is killed")
        leg = search.run(None)
        record, found = _check(search.database, record, leg, rows, "to its end")
        faults += found
        if not _count_plans(search.database):
            faults.append("no plan was stored in the end")
    out.say()
    out.table(["KILLED", "TRIALS BEFORE", "AFTER", "REPORTED", "ALL GONE", "VERDICT"], rows)
    out.say()
    show_faults(faults, out)
    return out.conclude(
        [
            Result(f"faults after {arguments.kills} kills", len(faults), high=0),
            Result("finished trials on record in the end", len(record)),
        ]
    )


@contextmanager
def _search() -> Iterator[Search]:
    with Ddlplan.in_own_folder() as ddlplan:
        ddlplan.run("probe")  # takes longer than most of what is to be killed here
        search = Search(ddlplan)
        try:
            yield search
        finally:
            search.processes.end()


def _draw(dice: random.Random, kills: int) -> Moment:
    """Draw a moment: one in four in the start-up, or wherever it falls, the others in the trials.

    Were all counted from the start, a slow machine would not see a single trial.
    """
    in_trials = kills % _ONE_IN != 0
    latest_s = _LATEST_IN_TRIALS_S if in_trials else _LATEST_FROM_START_S
    return Moment(after_s=dice.uniform(0, latest_s), in_trials=in_trials)


def _check(
    database: Path, before: Record, leg: Leg, rows: list[list[str]], moment: str
) -> tuple[Record, list[str]]:
    """Hold the database against what must be in it; add a row to the table."""
    trials, faults = read_trials(_copy(database))
    after = {trial["id"]: tuple(trial) for trial in trials}
    lost = [trial_id for trial_id, trial in before.items() if after.get(trial_id) != trial]
    if lost:
        faults.append(f"trials {lost} were lost or changed")
    if len(after) - len(before) < leg.reported:
        faults.append(f"{leg.reported} trials reported, {len(after) - len(before)} stored")
    faults += find_doubles(trials, "study_id", "number")
    searched = [trial for trial in trials if trial["role"] == "search"]
    faults += find_doubles(searched, "study_id", "plan")
    if len({trial["study_id"] for trial in trials}) > 1:
        faults.append("several studies for one search")
    if not leg.killed and leg.exit_code != 0:
        last = leg.stderr.strip().splitlines()[-1:]
        faults.append(f"exit code {leg.exit_code}: {''.join(last)}")
    if leg.gone_s is None:
        faults.append(f"processes were left after {_GONE_LIMIT_S:g} s")
    gone = "no" if leg.gone_s is None else f"{leg.gone_s:.2f} s"
    verdict = "; ".join(faults) or "ok"
    rows.append([moment, str(len(before)), str(len(after)), str(leg.reported), gone, verdict])
    return after, [f"{moment}: {fault}" for fault in faults]


def _copy(database: Path) -> Path:
    """Copy the database and its journal: the next tuner finds what the killed one left."""
    copy = database.with_name("copy.db")
    for suffix in ("", "-journal", "-wal", "-shm"):
        source, target = Path(f"{database}{suffix}"), Path(f"{copy}{suffix}")
        target.unlink(missing_ok=True)
        if source.exists():
            shutil.copyfile(source, target)
    return copy


def _count_plans(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT count(*) FROM plans").fetchone()[0])


if __name__ == "__main__":
    run_bench(main)

"""Jobs under `kill -9`: their states stay true, nothing happens twice, and nothing is left.

A server starts a search or a training and, queued behind it, a probe. Then one process is killed,
in turn and at a random moment: the server (also while it starts the jobs), the supervisor of the
first job, or the command that this runs, a search or a training. From then on:

* within 10 s the state of each job agrees with its processes: open while it has some, over else;
* the job of a killed supervisor is interrupted, that of a killed command has failed by SIGKILL,
  those of a killed server go on, and all their processes are gone within 10 s after its end;
* the queue goes on: the probe comes to its end;
* each request that was answered has one job, and one that was not has at most one;
* the database is sound, and no trial is stored twice.

What is trained is small, so that a search takes some seconds: it is the bookkeeping that counts.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from _block import BenchError, Ddlplan, Result, begin, make_parser, run_bench, show_faults
from _killed_service import END_LIMIT_S, POLL_S, Service, wait
from _stored_trials import find_doubles, read_trials

from planner.api import jobs
from planner.records.job_record import JobRecord, JobState

_TRUE_WITHIN_S, _LATEST_S = 10.0, 12.0
"""And the latest moment of a kill."""

_VICTIMS = ("server", "supervisor", "tuner", "training")


@dataclass
class Tally:
    """What became of the kills of one kind of process."""

    kills: int = 0
    early: int = 0
    """Rounds in which there was nothing to kill any more."""
    true_s: list[float] = field(default_factory=list)
    """Time from each kill until states agreed with processes."""
    states: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


class Round:
    """One kill.

    Args:
        service: The server.
        victim: What is killed.
        dice: Draws the moment.
    """

    def __init__(self, service: Service, victim: str, dice: random.Random) -> None:
        self._service = service
        self._victim = victim
        kinds = {"tuner": "tune", "training": "launch"}
        self._kind = kinds.get(victim) or dice.choice(["tune", "launch"])
        self._after_s = dice.uniform(0, _LATEST_S)
        self._numbers: list[int | None] = []

    def run(self, tally: Tally) -> None:
        """Start the jobs, kill, check."""
        service = self._service
        service.start()
        before = len(service.rows())
        asking = threading.Thread(target=self._ask)
        asking.start()
        if self._victim != "server":
            asking.join()
        killed = self._kill()
        killed_at = time.monotonic()
        asking.join()
        tally.kills += killed
        tally.early += not killed
        tally.faults += self._check(before, killed, killed_at, tally)

    def _ask(self) -> None:
        options: dict[str, Any] = {"use_case": self._service.use_case}
        options |= {"budget": "12s", "trials": 1} if self._kind == "tune" else {"epochs": 40}
        self._numbers.append(self._service.post(self._kind, options))
        self._numbers.append(self._service.post("probe", {"quick": True}))

    def _kill(self) -> bool:
        """Kill the victim at its moment; false where it had ended before."""
        service = self._service
        if self._victim == "server":
            time.sleep(self._after_s)
            assert service.process is not None
            service.process.kill()
            service.process.wait()
            return True
        number = self._numbers[0]
        assert number is not None, "the server lives"
        find = service.supervisor if self._victim == "supervisor" else service.command
        wait(lambda: find(number) or not service.processes(), "the job begins")
        time.sleep(self._after_s)
        pid = find(number)
        if pid is None:
            return False
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def _check(self, before: int, killed: bool, killed_at: float, tally: Tally) -> list[str]:
        service, faults = self._service, list[str]()
        while lies := service.find_lies():
            if time.monotonic() - killed_at > _TRUE_WITHIN_S:
                faults += lies
                break
            time.sleep(POLL_S)
        tally.true_s.append(time.monotonic() - killed_at)
        added = service.rows()[before:]
        answered = [number for number in self._numbers if number is not None]
        if not set(answered) <= {job.id for job in added} or len(added) > len(self._numbers):
            faults.append(f"jobs {answered} were answered, {[job.id for job in added]} are stored")
        if killed and self._victim != "server":
            faults += self._check_victim(tally, killed_at)
        elif added and added[0].kind != "probe" and not added[0].state.is_over:
            with suppress(Exception):  # it may have ended meanwhile
                jobs.cancel(int(added[0].id or 0), db=service.db)
        faults += self._check_end(added, tally)
        return [f"{self._victim} at {self._after_s:.1f} s: {fault}" for fault in faults]

    def _check_victim(self, tally: Tally, killed_at: float) -> list[str]:
        """See how the job ended whose process was killed, and what it left."""
        service, number = self._service, int(self._numbers[0] or 0)
        while not (job := jobs.get(number, db=service.db)).state.is_over or service.command(number):
            if time.monotonic() - killed_at > _TRUE_WITHIN_S:
                left = sorted(service.processes().values())
                return [f"{job.kind} {number} is {job.state} after {_TRUE_WITHIN_S:g} s: {left}"]
            time.sleep(POLL_S)
        tally.states[str(job.state)] += 1
        expected: tuple[JobState, int | None] = (JobState.INTERRUPTED, None)
        if self._victim != "supervisor":
            expected = (JobState.FAILED, -signal.SIGKILL)
        found = (job.state, job.exit_code)
        return [] if found in (expected, (JobState.DONE, 0)) else [f"job {number}: {found}"]

    def _check_end(self, added: list[JobRecord], tally: Tally) -> list[str]:
        """See that the other jobs come to their end and that nothing is left."""
        service, faults = self._service, list[str]()
        deadline = time.monotonic() + END_LIMIT_S
        while open_jobs := [job.id for job in service.rows() if not job.state.is_over]:
            if time.monotonic() > deadline:
                faults.append(f"jobs {open_jobs} do not end")
                break
            time.sleep(POLL_S)
        ended_at = time.monotonic()
        while left := service.processes():
            if time.monotonic() - ended_at > _TRUE_WITHIN_S:
                faults.append(f"processes are left: {sorted(left.values())[:3]}")
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                break
            time.sleep(POLL_S)
        allowed = {"done", "cancelled", "interrupted"} if self._victim == "server" else {"done"}
        for job in [jobs.get(int(one.id or 0), db=service.db) for one in added]:
            if self._victim == "server":
                tally.states[str(job.state)] += 1
            if job.id != self._numbers[0] and job.state not in allowed:
                faults.append(f"job {job.id} behind it is {job.state}: {job.error}")
            elif self._victim == "server" and job.id in self._numbers and job.state not in allowed:
                faults.append(f"job {job.id} is {job.state}: {job.error}")
        trials, damage = read_trials(service.db)
        return faults + damage + find_doubles(trials, "study_id", "number")


def main() -> int:
    """Kill, check, and show."""
    arguments, out = begin(make_parser(__doc__, kills=(20, "how many")))
    dice = random.Random(0)
    tallies = {victim: Tally() for victim in _VICTIMS}
    with Ddlplan.in_own_folder() as ddlplan:
        service = Service(ddlplan)
        try:
            words = ("tune", "--use-case", service.use_case, "--budget", "12s", "--trials", 1)
            if code := ddlplan.start(*words, variables=service.variables).wait():
                raise BenchError(f"the first search failed with exit code {code}")
            for number in range(arguments.kills):
                victim = _VICTIMS[number % len(_VICTIMS)]
                tally = tallies[victim]
                seen = len(tally.faults)
                Round(service, victim, dice).run(tally)
                verdict = "; ".join(tally.faults[seen:]) or "ok"
                out.say(f"kill {number + 1} of {arguments.kills}, {victim}: {verdict}")
        finally:
            service.end()
    out.say()
    rows = [
        [
            victim,
            str(tally.kills),
            str(tally.early),
            f"{max(tally.true_s, default=0.0):.1f} s",
            ", ".join(f"{count} {state}" for state, count in tally.states.items()),
            str(len(tally.faults)),
        ]
        for victim, tally in tallies.items()
    ]
    out.table(["KILLED", "KILLS", "TOO LATE", "TRUE AFTER", "JOBS ENDED AS", "FAULTS"], rows)
    out.say()
    faults = [fault for tally in tallies.values() for fault in tally.faults]
    show_faults(faults, out)
    kills = sum(tally.kills for tally in tallies.values())
    return out.conclude([Result(f"faults after {kills} kills", len(faults), high=0)])


if __name__ == "__main__":
    run_bench(main)

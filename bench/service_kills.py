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

import argparse
import http.client
import json
import os
import random
import secrets
import signal
import sqlite3
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _block import BenchError, Ddlplan, Output, Required, Result, make_parser, positive, run_bench

from planner.api import jobs
from planner.records.job_record import JobRecord, JobState

_MARK = "BENCH_SERVICE_KILLS"
_TRUE_WITHIN_S = 10.0
_END_LIMIT_S = 180.0
_POLL_S = 0.1
_VICTIMS = ("server", "supervisor", "tuner", "training")

_CASE = '''\
"""A network that trains in a blink."""

import torch
from torch import nn


class Tiny:
    name = "tiny"
    default_batch = 16

    def model(self):
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 196, 3))

    def dataset(self, data, *, train):
        generator = torch.Generator().manual_seed(int(train))
        count = 512 if train else 32
        pictures = torch.randn(count, 3, 16, 16, generator=generator)
        return torch.utils.data.TensorDataset(pictures, torch.arange(count) % 3)

    def loss(self, output, target):
        return nn.functional.cross_entropy(output, target)

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.001)
'''


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


class Service:
    """The server, and its jobs as the kernel sees them.

    Args:
        ddlplan: The command, with the database of the server.
    """

    def __init__(self, ddlplan: Ddlplan) -> None:
        self._ddlplan = ddlplan
        self._mark = uuid.uuid4().hex
        self._case = ddlplan.folder / "tiny.py"
        self._case.write_text(_CASE)
        self._token = ddlplan.folder / "token"
        self._token.write_text(secrets.token_urlsafe(32))
        self._token.chmod(0o600)
        locks = ddlplan.folder / "locks"
        locks.mkdir()
        self.environment = ddlplan.environment() | {
            _MARK: self._mark,
            "DDLPLAN_LOCKS": str(locks),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        self.use_case = f"{self._case}:Tiny"
        self.db = str(ddlplan.database)
        self.process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> None:
        """Start the server, unless it runs."""
        if self.process is not None and self.process.poll() is None:
            return
        out = self._ddlplan.folder / "address"
        with out.open("wb") as stream:
            self.process = subprocess.Popen(
                self._ddlplan.command(
                    *("serve", "--allow-actions", "--use-case", self.use_case),
                    *("--token-file", self._token),
                ),
                cwd=self._ddlplan.folder,
                env=self.environment | {"PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
            )
        wait(lambda: "http://" in out.read_text(), "the server listens")
        self._port = int(out.read_text().split("http://")[1].split("/")[0].rpartition(":")[2])

    def post(self, kind: str, options: dict[str, Any]) -> int | None:
        """Ask for a job; give its number, ``None`` where there was no answer.

        Raises:
            BenchError: The server has refused it.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_END_LIMIT_S)
        headers = {
            "Authorization": f"Bearer {self._token.read_text()}",
            "Content-Type": "application/json",
        }
        try:
            with closing(connection):
                connection.request("POST", f"/api/v1/jobs/{kind}", json.dumps(options), headers)
                answer = connection.getresponse()
                text = answer.read()
        except (OSError, http.client.HTTPException):
            return None
        if answer.status != http.client.ACCEPTED:
            raise BenchError(f"the server refuses a job with {answer.status}: {text.decode()}")
        return int(json.loads(text)["data"]["id"])

    def rows(self) -> list[JobRecord]:
        """Give the jobs as they are said to be, oldest first."""
        return jobs.find(db=self.db)[::-1]

    def processes(self) -> dict[int, str]:
        """Give all processes but the server, with their command lines."""
        mark, found = f"{_MARK}={self._mark}".encode(), {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal() or int(entry.name) == os.getpid():
                continue
            with suppress(OSError):  # it has ended, or is not ours
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    if state not in "ZX":
                        found[int(entry.name)] = line
        if self.process is not None:
            found.pop(self.process.pid, None)
        return found

    def supervisor(self, job_id: int) -> int | None:
        """Give the supervisor of a job; the second one where it is being started."""
        return _supervisor(self.db, job_id, self.processes())

    def command(self, job_id: int) -> int | None:
        """Give the process of the command of a job."""
        return _commands(self.processes()).get(job_id)

    def find_lies(self) -> list[str]:
        """Hold the jobs against their processes, at a moment in which no job changes."""
        rows = self.rows()
        while True:
            processes, earlier, rows = self.processes(), rows, self.rows()
            if [(job.id, job.state) for job in rows] == [(job.id, job.state) for job in earlier]:
                break
        lies, commands = [], _commands(processes)
        for job in rows:
            assert job.id is not None
            has_process = job.id in commands or _supervisor(self.db, job.id, processes) is not None
            if job.state.is_over == has_process:
                beside = "has a process" if has_process else "has none"
                lies.append(f"job {job.id} is {job.state} and {beside}")
        return lies

    def end(self) -> None:
        """End everything."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _supervisor(db: str, job_id: int, processes: Mapping[int, str]) -> int | None:
    ends = f"planner.supervision {db} {job_id} "
    return max((pid for pid, line in processes.items() if line.endswith(ends)), default=None)


def _commands(processes: Mapping[int, str]) -> dict[int, int]:
    """Give the process of each command, by the number of its job."""
    found: dict[int, int] = {}
    for pid, line in processes.items():
        if " -m planner " not in line or "process_end" in line:
            continue
        with suppress(OSError):  # it has ended
            for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                if word.startswith(b"DDLPLAN_JOB="):
                    found.setdefault(int(word.partition(b"=")[2]), pid)
    return found


class Round:
    """One kill.

    Args:
        service: The server.
        victim: What is killed.
        dice: Draws the moment.
        longest_s: Latest moment.
    """

    def __init__(
        self, service: Service, victim: str, dice: random.Random, longest_s: float
    ) -> None:
        self._service = service
        self._victim = victim
        kinds = {"tuner": "tune", "training": "launch"}
        self._kind = kinds.get(victim) or dice.choice(["tune", "launch"])
        self._after_s = dice.uniform(0, longest_s)
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
            time.sleep(_POLL_S)
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
            time.sleep(_POLL_S)
        tally.states[str(job.state)] += 1
        expected: tuple[JobState, int | None] = (JobState.INTERRUPTED, None)
        if self._victim != "supervisor":
            expected = (JobState.FAILED, -signal.SIGKILL)
        found = (job.state, job.exit_code)
        return [] if found in (expected, (JobState.DONE, 0)) else [f"job {number}: {found}"]

    def _check_end(self, added: list[JobRecord], tally: Tally) -> list[str]:
        """See that the other jobs come to their end and that nothing is left."""
        service, faults = self._service, list[str]()
        deadline = time.monotonic() + _END_LIMIT_S
        while open_jobs := [job.id for job in service.rows() if not job.state.is_over]:
            if time.monotonic() > deadline:
                faults.append(f"jobs {open_jobs} do not end")
                break
            time.sleep(_POLL_S)
        ended_at = time.monotonic()
        while left := service.processes():
            if time.monotonic() - ended_at > _TRUE_WITHIN_S:
                faults.append(f"processes are left: {sorted(left.values())[:3]}")
                for pid in left:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                break
            time.sleep(_POLL_S)
        allowed = {"done", "cancelled", "interrupted"} if self._victim == "server" else {"done"}
        for job in [jobs.get(int(one.id or 0), db=service.db) for one in added]:
            if self._victim == "server":
                tally.states[str(job.state)] += 1
            if job.id != self._numbers[0] and job.state not in allowed:
                faults.append(f"job {job.id} behind it is {job.state}: {job.error}")
            elif self._victim == "server" and job.id in self._numbers and job.state not in allowed:
                faults.append(f"job {job.id} is {job.state}: {job.error}")
        return faults + check_database(service.db)


def check_database(db: str) -> list[str]:
    """See that the database is sound and holds each trial once."""
    with closing(sqlite3.connect(db, timeout=30)) as connection:
        verdict = [row[0] for row in connection.execute("PRAGMA integrity_check")]
        doubled = connection.execute(
            "SELECT study_id, number FROM trials GROUP BY study_id, number HAVING count(*) > 1"
        ).fetchall()
    faults = [] if verdict == ["ok"] else [f"integrity_check: {verdict}"]
    return faults + [
        f"trial {number} of study {study} is stored twice" for study, number in doubled
    ]


def wait(is_so: Callable[[], object], what: str) -> None:
    """Wait for something.

    Raises:
        BenchError: It takes too long.
    """
    deadline = time.monotonic() + _END_LIMIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise BenchError(f"waited in vain: {what}")
        time.sleep(_POLL_S)


def main() -> int:
    """Kill, check, and show."""
    arguments = _parse()
    out = Output("service_kills", as_json=arguments.json)
    out.introduce()
    # Moments to choose by chance, not secrets.
    dice = random.Random(arguments.seed)
    tallies = {victim: Tally() for victim in _VICTIMS}
    with Ddlplan.in_own_folder() as ddlplan:
        service = Service(ddlplan)
        try:
            subprocess.run(
                ddlplan.command(
                    *("tune", "--use-case", service.use_case, "--budget", "12s", "--trials", 1)
                ),
                cwd=ddlplan.folder,
                env=service.environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                check=True,
            )
            for number in range(arguments.kills):
                victim = arguments.victims[number % len(arguments.victims)]
                tally = tallies[victim]
                seen = len(tally.faults)
                Round(service, victim, dice, arguments.longest).run(tally)
                verdict = "; ".join(tally.faults[seen:]) or "ok"
                out.say(f"kill {number + 1} of {arguments.kills}, {victim}: {verdict}")
        except subprocess.CalledProcessError as error:
            raise BenchError(
                f"the first search failed with exit code {error.returncode}"
            ) from error
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
    for fault in faults:
        out.say(f"fault: {fault}")
    kills = sum(tally.kills for tally in tallies.values())
    return out.conclude(
        [Result(figure=f"faults after {kills} kills", value=len(faults), required=Required(high=0))]
    )


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=positive, default=20, help="how many (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the moments (0)")
    parser.add_argument(
        "--victims", nargs="+", choices=_VICTIMS, default=_VICTIMS, help="what is killed (all)"
    )
    parser.add_argument("--longest", type=float, default=12.0, help="latest moment, in s (12)")
    return parser.parse_args()


if __name__ == "__main__":
    run_bench(main)

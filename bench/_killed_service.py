"""Server whose processes are killed, and its jobs as the kernel sees them."""

from __future__ import annotations

import http.client
import json
import secrets
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any

import psutil
from _block import CASES, BenchError, Ddlplan
from _marked_processes import MarkedProcesses

from planner.api import jobs
from planner.records.job_record import JobRecord

END_LIMIT_S = 180.0
POLL_S = 0.1


class Service:
    """The server, and its jobs as the kernel sees them.

    Args:
        ddlplan: The command, with the database of the server.
    """

    def __init__(self, ddlplan: Ddlplan) -> None:
        self._ddlplan = ddlplan
        self._marked = MarkedProcesses()
        self._token = ddlplan.folder / "token"
        self._token.write_text(secrets.token_urlsafe(32))
        self._token.chmod(0o600)
        locks = ddlplan.folder / "locks"
        locks.mkdir()
        self.variables = self._marked.variables | {
            "DDLPLAN_LOCKS": str(locks),
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        self.use_case = f"{CASES}:Tiny"
        self.db = str(ddlplan.database)
        self.process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def start(self) -> None:
        """Start the server, unless it runs."""
        if self.process is not None and self.process.poll() is None:
            return
        out = self._ddlplan.folder / "address"
        with out.open("wb") as stream:
            self.process = self._ddlplan.start(
                *("serve", "--allow-actions", "--use-case", self.use_case),
                *("--token-file", self._token),
                output=stream,
                errors=stream,
                variables=self.variables | {"PYTHONUNBUFFERED": "1"},
            )
        wait(lambda: "http://" in out.read_text(), "the server listens")
        self._port = int(out.read_text().split("http://")[1].split("/")[0].rpartition(":")[2])

    def post(self, kind: str, options: dict[str, Any]) -> int | None:
        """Ask for a job; give its number, ``None`` where there was no answer.

        Raises:
            BenchError: The server has refused it.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=END_LIMIT_S)
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
        found = self._marked.find()
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
        self._marked.end()


def _supervisor(db: str, job_id: int, processes: Mapping[int, str]) -> int | None:
    ends = f"planner.supervision {db} {job_id}"
    return max((pid for pid, line in processes.items() if line.endswith(ends)), default=None)


def _commands(processes: Mapping[int, str]) -> dict[int, int]:
    """Give the process of each command, by the number of its job."""
    found: dict[int, int] = {}
    for pid, line in processes.items():
        if " -m planner " not in line or "process_end" in line:
            continue
        with suppress(psutil.Error):  # it has ended
            if (job := psutil.Process(pid).environ().get("DDLPLAN_JOB")) is not None:
                found.setdefault(int(job), pid)
    return found


def wait(is_so: Callable[[], object], what: str) -> None:
    """Wait for something.

    Raises:
        BenchError: It takes too long.
    """
    deadline = time.monotonic() + END_LIMIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise BenchError(f"waited in vain: {what}")
        time.sleep(POLL_S)

"""How does one node of a job train? It starts its plan's workers and watches them to the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from launch.epoch import EpochRecord
from launch.job import Job
from launch.run_directory import RunDirectory, append_line
from launch.workers.fork_server import ForkServer
from launch.workers.fork_servers import ForkServers
from launch.workers.group import Ended, Event, WorkerGroup, explain_failure
from launch.workers.reports import JobFailed, Report, StepDone, Validated
from launch.workers.task import Purpose, Task, worker_tasks
from probes.hardware import Cpu
from probes.memory import oom_kill_count

_LOOK_AROUND_S = 1.0


class Node:
    """One node's part of a job.

    Args:
        job: The job.
        rank: This node's number in it.
        cpu: Processors of this node.
        say: Takes what the user should hear.
        is_wanted: Asked about once a second; once false, the workers are ended.
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        cpu: Cpu,
        say: Callable[[Report], None],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._job = job
        self._here = job.nodes[rank]
        self._cpu = cpu
        self._say = say
        self._is_wanted = is_wanted
        self._directory = RunDirectory(Path(job.run_directory))
        self._epochs = EpochRecord(self._here.plan.processes)

    def train(self) -> bool:
        """Train to the end; tell whether every worker came to it.

        Raises:
            InvalidPlanError: The plan does not fit this node.
            LaunchError: The process that starts workers is gone.
        """
        self._here.plan.check_fits(self._cpu.usable_cores)
        task = Task(
            purpose=Purpose.TRAIN,
            use_case=self._job.use_case,
            data=self._job.data,
            plan=self._here.plan,
            seed=self._job.seed,
            epochs=self._job.epochs,
            weights=str(self._directory.weights),
        )
        first = replace(task, purpose=Purpose.DESCRIBE)
        with ForkServers() as servers:
            trains = servers.get(self._here.plan.allocator)  # loads torch while the other describes
            # The data may have to be made ready on this node first: a plan can be older than they.
            cores = self._cpu.choose_cores(self._here.plan.threads)
            return self._run(servers.get(), [first]) and self._run(
                trains, worker_tasks(task, cores)
            )

    def _run(self, server: ForkServer, tasks: list[Task]) -> bool:
        self._oom_kills = oom_kill_count() or 0
        prefix = self._directory.log_prefix(self._here.host)
        with WorkerGroup(server, tasks, self._directory.path, log_prefix=prefix) as group:
            return self._watch(group)

    def _watch(self, group: WorkerGroup) -> bool:
        look_at = time.monotonic()
        while group.pids or group.has_events():
            if time.monotonic() >= look_at:  # by the clock: workers may never be silent
                if not self._is_wanted():
                    return False
                look_at = time.monotonic() + _LOOK_AROUND_S
            event = group.next_event(_LOOK_AROUND_S)
            if event is None:
                continue
            if failure := self._find_failure(group, event):
                self._say(failure)
                return False
            self._handle(event)
        return True

    def _handle(self, event: Event) -> None:
        if isinstance(event, Ended):
            return
        match event.report:
            case StepDone() as step:
                self._epochs.add_step(step)
                self._say(step)
            case Validated() as validated:
                if epoch := self._epochs.add_validation(validated):
                    line = json.dumps(epoch.to_json()).encode() + b"\n"
                    append_line(self._directory.metrics, line)
                    self._say(epoch)
            case report:
                self._say(report)

    def _find_failure(self, group: WorkerGroup, event: Event) -> JobFailed | None:
        oom_kills = (oom_kill_count() or 0) - self._oom_kills if isinstance(event, Ended) else 0
        failure = explain_failure(group, event, oom_kills)
        if failure is None:
            return None
        return JobFailed(
            node=self._here.host,
            worker=failure.worker,
            workers=group.size,
            message=failure.message,
            log=str(failure.log),
            log_tail=failure.log_tail,
            signal=failure.signal,
            users_fault=failure.users_fault,
        )

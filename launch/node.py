"""How does one node of a job train? It starts its plan's workers and watches them to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread

from launch.exchange.forms import Held
from launch.exchange.server import Laid, StepServer, SumTimes
from launch.exchange.tally import Tally
from launch.hang import DATA_LIMIT_S, HangWatch, IdleWatch
from launch.job import Job
from launch.process_end import is_stopped
from launch.run_directory import RunDirectory
from launch.training.handles import GroupHandles
from launch.wishes import Wishes
from launch.workers.fork_server import ForkServer
from launch.workers.fork_servers import ForkServers
from launch.workers.group import Ended, Event, WorkerGroup, explain_failure
from launch.workers.reports import GradientsLaid, JobFailed, NoStep, Report, StepDone, StepsFinished
from launch.workers.task import Purpose, Task, worker_tasks
from probes.hardware import Cpu
from probes.memory import oom_kill_count
from probes.usage import group_cpu_s

_LOOK_AROUND_S = 1.0

MakeServer = Callable[[GroupHandles, int, Callable[[SumTimes], None]], StepServer]
"""Makes what answers so many workers between steps, and averages with the other nodes."""


class Node:
    """One node's part of a job.

    Args:
        job: The job.
        rank: This node's number in it.
        cpu: Processors of this node.
        say: Takes what the user should hear.
        is_wanted: Asked about once a second; once false, the workers are ended.
        make_server: Makes what answers the workers.
        wishes: Hears what is wished of the job.
    """

    def __init__(
        self,
        job: Job,
        rank: int,
        cpu: Cpu,
        say: Callable[[Report], None],
        is_wanted: Callable[[], bool] = lambda: True,
        *,
        make_server: MakeServer = StepServer,
        wishes: Wishes | None = None,
    ) -> None:
        self._job = job
        self._rank = rank
        self._here = job.nodes[rank]
        self._cpu = cpu
        self._say = say
        self._is_wanted = is_wanted
        self._make_server = make_server
        self._wishes = wishes or Wishes()
        self._hang = HangWatch(job.hang_limit_s)
        self._describing = IdleWatch(DATA_LIMIT_S)
        self._directory = RunDirectory(Path(job.run_directory))
        self._laid: list[GradientsLaid] = []
        self._fault: BaseException | None = None
        self._has_trained = False
        self._is_users_fault = False
        self._keep_at: float | None = None
        """When to write the next checkpoint, by the monotonic clock."""

    def train(self, servers: ForkServers | None = None) -> bool:
        """Train to the end; tell whether every worker came to it.

        Args:
            servers: Fork the workers, where several jobs follow one another; else its own do.

        Raises:
            InvalidPlanError: The plan does not fit this node.
            LaunchError: The process that starts workers is gone, or the nodes cannot average.
        """
        self._here.plan.check_fits(self._cpu.usable_cores)
        self._directory.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        for log in self._directory.logs_of(self._here.host):
            log.unlink()  # on a disk of this host's own, an earlier run may have had this number
        batches = self._job.node_batches
        task = Task(
            purpose=Purpose.TRAIN,
            use_case=self._job.use_case,
            data=self._job.data,
            plan=self._here.plan,
            seed=self._job.seed,
            epochs=self._job.epochs,
            node=self._rank,
            node_batches=batches if len(batches) > 1 else (),
            is_led=True,
            weights=str(self._directory.weights) if self._rank == 0 else None,
            hosts=tuple(node.host for node in self._job.nodes),
            checkpoint=self._job.keeping.folder,
            resume=self._job.keeping.resume,
            copy=str(self._directory.copy_on(self._here.host)),
        )
        first = replace(task, purpose=Purpose.DESCRIBE)
        with ForkServers() if servers is None else nullcontext(servers) as forks:
            trains = forks.get(self._here.plan.allocator)  # loads torch while the other describes
            # The data may have to be made ready on this node first: a plan can be older than they.
            cores = self._cpu.choose_cores(self._here.plan.threads)
            is_done = self._describe(forks.get(), first) and self._train(
                trains, worker_tasks(task, cores)
            )
        if self._is_users_fault and not self._has_trained:  # there was no run
            self._directory.remove_part_of(self._here.host)
        return is_done

    def leave_nothing(self) -> None:
        """Take back what says nothing, where the job is over before this node has made a step."""
        if not self._has_trained:
            self._directory.remove_part_of(self._here.host, but_words=True)

    def _describe(self, server: ForkServer, task: Task) -> bool:
        with self._start(server, [task], None) as group:
            return self._watch(group, None)

    def _train(self, server: ForkServer, tasks: list[Task]) -> bool:
        handles = GroupHandles.create()
        try:
            with (
                self._serving(handles, len(tasks)) as steps,
                self._start(server, tasks, handles) as group,
            ):
                return self._watch(group, steps)
        finally:
            handles.close()

    def _start(
        self, server: ForkServer, tasks: list[Task], handles: GroupHandles | None
    ) -> WorkerGroup:
        self._oom_kills = oom_kill_count() or 0
        prefix = self._directory.log_prefix(self._here.host)
        return WorkerGroup(server, tasks, self._directory.path, log_prefix=prefix, handles=handles)

    @contextmanager
    def _serving(self, handles: GroupHandles, workers: int) -> Iterator[StepServer]:
        tally = Tally(self._say) if self._rank == 0 else None
        steps = self._make_server(handles, workers, tally or _ignore)
        thread = Thread(target=self._serve, args=[steps], name="steps")
        thread.start()
        self._wishes.attach(steps)
        try:
            yield steps
        finally:
            self._wishes.attach(None)
            steps.close()
            thread.join()
            if tally is not None:
                tally.tell()

    def _serve(self, steps: StepServer) -> None:
        try:
            steps.run()
        except BaseException as fault:  # noqa: BLE001 - raised again where the node is watched
            self._fault = fault

    def _watch(self, group: WorkerGroup, steps: StepServer | None) -> bool:
        look_at = time.monotonic()
        while group.pids or group.has_events():
            if self._fault is not None:
                raise self._fault
            if time.monotonic() >= look_at:  # by the clock: workers may never be silent
                if not self._is_wanted():
                    return False
                if hang := self._find_hang(group, steps):
                    self._say(self._explain_hang(hang, group, steps))
                    return False
                look_at = time.monotonic() + _LOOK_AROUND_S
                if steps is not None:
                    self._keep_in_time(steps)
            event = group.next_event(_LOOK_AROUND_S)
            if event is None:
                continue
            if failure := self._find_failure(group, event):
                self._say(failure)
                return False
            self._handle(event, group.size, steps)
        return True

    def _keep_in_time(self, steps: StepServer) -> None:
        """Have a checkpoint written when it is time: counted from the first step on."""
        now, keeping = time.monotonic(), self._job.keeping
        if keeping.folder is None or self._rank > 0 or steps.steps == 0:
            return
        if self._keep_at is not None and now >= self._keep_at:
            steps.wish(checkpoint=True)
            self._keep_at = None
        if self._keep_at is None:
            self._keep_at = now + keeping.every_s

    def _handle(self, event: Event, workers: int, steps: StepServer | None) -> None:
        if isinstance(event, Ended):
            return
        self._describing.restart()
        match event.report:
            case GradientsLaid() as laid:
                self._laid.append(laid)
                if steps is not None and len(self._laid) == workers:
                    steps.lay_out(_put_together(self._laid))
            case StepDone() as step:
                self._has_trained = True
                self._hang.add_step(step.time_s)
                if self._rank == 0:  # every node makes the same steps
                    self._say(step)
            case StepsFinished() as finished:
                if self._rank == 0:
                    self._say(finished)
            case NoStep():
                self._hang.leave_steps()
            case report:
                self._say(report)

    def _find_failure(self, group: WorkerGroup, event: Event) -> JobFailed | None:
        oom_kills = (oom_kill_count() or 0) - self._oom_kills if isinstance(event, Ended) else 0
        failure = explain_failure(group, event, oom_kills)
        if failure is None:
            return None
        self._is_users_fault = failure.users_fault
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

    def _find_hang(self, group: WorkerGroup, steps: StepServer | None) -> str | None:
        def read_cpu_s() -> float:
            return group_cpu_s(*group.pids)

        if steps is not None:
            return self._hang.find_hang(steps, group.printed_bytes, read_cpu_s)
        idle = self._describing.find_hang(group.printed_bytes, read_cpu_s)
        return None if idle is None else f"{idle} while its data are made ready"

    def _explain_hang(self, hang: str, group: WorkerGroup, steps: StepServer | None) -> JobFailed:
        """Say which worker does not come to an end, and let its log say where it is."""
        running = group.running
        group.say_where()
        stopped = [worker for worker, pid in running.items() if is_stopped(pid)]
        late = stopped or (steps.late_workers() if steps else []) or list(running) or [0]
        remark = ": it is stopped, as by SIGSTOP" if stopped else ""
        return JobFailed(
            node=self._here.host,
            worker=late[0],
            workers=group.size,
            message=f"hangs, {hang}{remark}",
            log=str(group.log(late[0])),
            log_tail=group.log_tail(late[0]),
            is_hang=True,
        )


def _ignore(_: SumTimes) -> None:
    return


def _put_together(reports: list[GradientsLaid]) -> Laid:
    first = reports[0]
    return Laid(
        board_offset=first.board_offset,
        participants=first.participants,
        parameters=first.parameters,
        held=[Held.from_json(held) for report in reports for held in report.held],
        training_samples=first.training_samples,
        validation_samples=first.validation_samples,
    )

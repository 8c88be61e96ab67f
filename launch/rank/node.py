"""Training on one node of a job: starts the plan's workers and watches them to the end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from threading import Thread

from launch.errors import NotFiniteError
from launch.gradient_sync.allreduce.statistics import CommunicationStatistics
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.gradient_sync.node_channel.gradient_layout import GradientLayout
from launch.gradient_sync.node_channel.step_server import StepServer, StepSyncTimes
from launch.gradient_sync.wire_formats import load_wire_format
from launch.job import Job
from launch.liveness.hang import DATA_TIMEOUT_S, IdleWatchdog, StepWatchdog
from launch.rank.control_signals import ControlSignals
from launch.rank.usage import UsageReporter
from launch.reports import (
    JobFailed,
    OnnxFailed,
    Report,
    StepDone,
    StepsFinished,
    StepsPaused,
    Working,
)
from launch.system.durable_files import make_folders
from launch.system.process_tree import is_stopped
from launch.system.run_directory import RunDirectory
from launch.workers.fork_server import ForkServer
from launch.workers.fork_server_pool import ForkServerPool
from launch.workers.group import WorkerEnded, WorkerEvent, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from probes.hardware import Cpu
from probes.usage import group_cpu_s

_POLL_S = 1.0

MakeServer = Callable[[SharedDescriptors, int, Callable[[StepSyncTimes], None]], StepServer]
"""Makes the server of so many workers' requests, which averages with the other nodes."""


class Node:
    """One node's part of a job."""

    def __init__(
        self,
        job: Job,
        rank: int,
        cpu: Cpu,
        send_report: Callable[[Report], None],
        *,
        make_server: MakeServer = StepServer,
        control_signals: ControlSignals | None = None,
    ) -> None:
        self._job = job
        self._rank = rank
        self._node_job = job.nodes[rank]
        self._cpu = cpu
        self._send_report = send_report
        self._make_server = make_server
        self._control_signals = control_signals or ControlSignals()
        self._step_watchdog = StepWatchdog(job.hang_timeout_s)
        self._idle_watchdog = IdleWatchdog(DATA_TIMEOUT_S)
        self._directory = RunDirectory(Path(job.run_directory))
        self._layouts: list[GradientLayout] = []
        self._fault: BaseException | None = None
        self._has_trained = False
        self._is_users_fault = False
        self._is_exporting = False
        self._checkpoint_at: float | None = None
        """When to write the next checkpoint, by the monotonic clock."""

    def train(self, servers: ForkServerPool | None = None) -> bool:
        """Train to the end; return whether every worker reached it.

        Args:
            servers: Fork the workers, where several jobs follow one another; else its own do.

        Raises:
            InvalidPlanError: The plan does not fit this node.
            LaunchError: The process that starts workers has ended, or the nodes cannot average.
        """
        self._node_job.plan.check_fits(self._cpu.usable_cores)
        make_folders(self._directory.path, mode=0o700)
        for log in self._directory.list_logs(self._node_job.host):
            log.unlink()  # on a disk of this host's own, an earlier run may have had this number
        batches = self._job.node_batches
        task = Task(
            purpose=Purpose.TRAIN,
            workload=self._job.workload,
            plan=self._node_job.plan,
            epochs=self._job.epochs,
            node=self._rank,
            node_batches=batches if len(batches) > 1 else (),
            has_rank=True,
            weights=str(self._directory.weights) if self._rank == 0 else None,
            best_weights=str(self._directory.best_weights) if self._job.keep_best else None,
            allow_nan=self._job.allow_nan,
            noise_cost_limit=self._job.noise_cost_limit,
            noise_obstacle=_noise_obstacle(self._job),
            hosts=tuple(node.host for node in self._job.nodes),
            checkpoint=self._job.checkpoint,
            checkpoint_copy=str(self._directory.checkpoint_copy(self._node_job.host)),
        )
        onnx = self._job.onnx if self._rank == 0 else None
        first = replace(
            task, purpose=Purpose.DESCRIBE, onnx=onnx, case_digests=self._job.case_digests
        )
        with (
            ForkServerPool() if servers is None else nullcontext(servers) as fork_servers,
            UsageReporter(self._job, self._rank, self._send_report) as self._usage,
        ):
            # Loads torch while the other describes.
            trains = fork_servers.get(self._node_job.plan)
            # The data may have to be made ready on this node first: a plan can be older than they.
            cores = self._cpu.choose_cores(self._node_job.plan.threads)
            is_done = self._describe(fork_servers.get(), first) and self._train(
                trains, make_worker_tasks(task, cores)
            )
            if is_done:
                self._usage.poll(is_last=True)
                if onnx is not None and not self._is_to_end:
                    self._export(fork_servers.get(), replace(first, purpose=Purpose.EXPORT))
        if self._is_users_fault and not self._has_trained:  # there was no run
            self._directory.remove_host_output(self._node_job.host)
        return is_done

    def remove_unused_output(self) -> None:
        """Remove empty output, where the job is over before this node has made a step."""
        if not self._has_trained:
            self._directory.remove_host_output(self._node_job.host, only_empty_logs=True)

    def _describe(self, server: ForkServer, task: Task) -> bool:
        with self._start(server, [task], None) as group:
            return self._run_to_end(group, None)

    def _train(self, server: ForkServer, tasks: list[Task]) -> bool:
        descriptors = SharedDescriptors.create()
        try:
            with (
                self._serving(descriptors, len(tasks)) as steps,
                self._start(server, tasks, descriptors) as group,
            ):
                return self._run_to_end(group, steps)
        finally:
            descriptors.close()

    @property
    def _is_to_end(self) -> bool:
        return self._control_signals.end_signal is not None

    def _export(self, server: ForkServer, task: Task) -> None:
        """Export the model in a process of its own; the training is done, whatever comes of it."""
        self._is_exporting = True
        self._send_report(Working(what="exporting the model to ONNX"))
        with self._start(server, [task], None) as group:
            self._run_to_end(group, None)
        self._is_users_fault = False

    def _start(
        self, server: ForkServer, tasks: list[Task], descriptors: SharedDescriptors | None
    ) -> WorkerGroup:
        prefix = self._directory.log_prefix(self._node_job.host)
        return WorkerGroup(
            server, tasks, self._directory.path, log_prefix=prefix, descriptors=descriptors
        )

    @contextmanager
    def _serving(self, descriptors: SharedDescriptors, workers: int) -> Iterator[StepServer]:
        statistics = CommunicationStatistics(self._send_report) if self._rank == 0 else None

        def on_sync(times: StepSyncTimes) -> None:
            self._usage.add_sync(times)
            if statistics is not None:
                statistics(times)

        steps = self._make_server(descriptors, workers, on_sync)
        thread = Thread(target=self._serve, args=[steps], name="steps")
        thread.start()
        self._control_signals.attach(steps)
        try:
            yield steps
        finally:
            self._control_signals.attach(None)
            steps.close()
            thread.join()
            if statistics is not None:
                statistics.flush()

    def _serve(self, steps: StepServer) -> None:
        try:
            steps.run()
        except BaseException as fault:  # noqa: BLE001 - raised again where the node is watched
            self._fault = fault

    def _run_to_end(self, group: WorkerGroup, steps: StepServer | None) -> bool:
        poll_at = time.monotonic()
        while group.pids or group.has_events():
            if self._fault is not None:
                raise self._fault
            if time.monotonic() >= poll_at:  # by the clock: workers may send without end
                if self._is_exporting and self._is_to_end:
                    return False
                if hang := self._find_hang(group, steps):
                    self._send_failure(self._explain_hang(hang, group, steps))
                    return False
                poll_at = time.monotonic() + _POLL_S
                self._usage.poll()
                if steps is not None:
                    self._request_due_checkpoint(steps)
            event = group.next_event(_POLL_S)
            if event is None:
                continue
            if failure := self._find_failure(group, event):
                self._send_failure(failure)
                return False
            self._handle(event, group.size, steps)
        return True

    def _send_failure(self, failure: JobFailed) -> None:
        if self._is_exporting:
            self._send_report(OnnxFailed(message=f"{failure.message}: see {failure.log}"))
        else:
            self._send_report(failure)

    def _request_due_checkpoint(self, steps: StepServer) -> None:
        """Request a checkpoint when it is time, counted from the first step on."""
        now, checkpoint = time.monotonic(), self._job.checkpoint
        if checkpoint.folder is None or self._rank > 0 or steps.steps == 0:
            return
        if self._checkpoint_at is not None and now >= self._checkpoint_at:
            steps.set_control_flags(checkpoint=True)
            self._checkpoint_at = None
        if self._checkpoint_at is None:
            self._checkpoint_at = now + checkpoint.every_s

    def _handle(self, event: WorkerEvent, workers: int, steps: StepServer | None) -> None:
        if isinstance(event, WorkerEnded):
            return
        self._idle_watchdog.restart()
        match event.report:
            case GradientLayout() as layout:
                self._layouts.append(layout)
                if steps is not None and len(self._layouts) == workers:
                    steps.set_layout(GradientLayout.merge(self._layouts))
            case StepDone() as step:
                self._has_trained = True
                self._step_watchdog.add_step(step.time_s)
                self._usage.add_step(step)
                if self._rank == 0:  # every node makes the same steps
                    self._send_report(step)
            case StepsFinished() as finished:
                if self._rank == 0:
                    self._send_report(finished)
            case StepsPaused():
                self._step_watchdog.pause_steps()
            case report:
                self._send_report(report)

    def _find_failure(self, group: WorkerGroup, event: WorkerEvent) -> JobFailed | None:
        failure = explain_failure(group, event)
        if failure is None:
            return None
        self._is_users_fault = failure.users_fault
        is_not_finite = failure.error == NotFiniteError.__name__
        return JobFailed(
            node=self._node_job.host,
            worker=failure.worker,
            workers=group.size,
            message=failure.message.partition(": ")[2] if is_not_finite else failure.message,
            log=str(failure.log),
            log_tail=failure.log_tail,
            signal=failure.signal,
            users_fault=failure.users_fault,
            is_not_finite=is_not_finite,
        )

    def _find_hang(self, group: WorkerGroup, steps: StepServer | None) -> str | None:
        def read_cpu_s() -> float:
            return group_cpu_s(*group.pids)

        if steps is not None:
            return self._step_watchdog.find_hang(steps, group.printed_bytes, read_cpu_s)
        idle = self._idle_watchdog.find_hang(group.printed_bytes, read_cpu_s)
        doing = "its model is exported" if self._is_exporting else "its data are made ready"
        return None if idle is None else f"{idle} while {doing}"

    def _explain_hang(self, hang: str, group: WorkerGroup, steps: StepServer | None) -> JobFailed:
        """Report the worker that hangs, and write its stack into its log."""
        running = group.running
        group.dump_stacks()
        stopped = [worker for worker, pid in running.items() if is_stopped(pid)]
        late = stopped or (steps.find_late_workers() if steps else []) or list(running) or [0]
        remark = ": it is stopped, as by SIGSTOP" if stopped else ""
        return JobFailed(
            node=self._node_job.host,
            worker=late[0],
            workers=group.size,
            message=f"hangs, {hang}{remark}",
            log=str(group.log(late[0])),
            log_tail=group.log_tail(late[0]),
            is_hang=True,
        )


def _noise_obstacle(job: Job) -> str | None:
    """Say why the noise of gradients cannot be told from their sums over the nodes, if so."""
    if len(job.nodes) == 1 or load_wire_format(job.wire).is_exact:
        return None
    return f"--wire {job.wire} rounds what is summed"

"""How do workers start without waiting for torch? A process that has loaded it forks them.

Importing torch and torchvision takes seconds on every core. One process per node does it, stays
at a single thread, touches no GPU, and forks a worker when told to: in milliseconds, with the
library's pages shared by all. Trials and training start their workers in this same way.

The server is started by `exec` and never imports mpi4py, so nothing here forks a process that
has called MPI_Init. When its owner goes, it ends all workers, what they have started, and itself;
when it goes, the kernel ends the workers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from launch.allocators import allocator_environment
from launch.errors import LaunchError
from launch.process_end import (
    end_with_parent,
    explain_exit,
    kill_group,
    offer_to_oom_killer,
    outlive_parent,
)
from launch.training.handles import GroupHandles
from launch.workers.task import Task

_MAX_MESSAGE_BYTES = 1 << 16
_STARTUP_LIMIT_S = 120.0

SAY_WHERE = signal.SIGQUIT
"""Lets a worker write into its log where each of its threads is."""

WORKER_SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONUNBUFFERED": "1",
    # The workers of a node talk to one another alone: by default their sockets would listen at
    # whatever address the host's name resolves to.
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_SOCKET_IFNAME": "lo",
    # torch.compile in the worker itself, not in processes that it would start beside its cores.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
}
"""What a worker's environment is given."""

# Variables by which a child would take itself for a rank of its parent's MPI job.
_MPI_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_")

# Variables that pin threads or bound their number for a process by itself: each worker would pin
# its own to the same cores, or have fewer than its plan says. With endings such as _DEV.
_THREAD_PREFIXES = (
    *("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_HW_SUBSET"),
    *("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OMP_DYNAMIC", "KMP_DYNAMIC_MODE"),
    *("KMP_ALL_THREADS", "KMP_MAX_THREADS", "KMP_DEVICE_THREAD_LIMIT"),
    *("MKL_NUM_THREADS", "MKL_DYNAMIC", "MKL_DOMAIN_NUM_THREADS"),
)


@dataclass(frozen=True, slots=True)
class WorkerExit:
    """A worker's process has ended."""

    pid: int
    code: int
    """Negative for the signal that ended it."""


class ForkServer:
    """The owner's side. Use it in a ``with`` block; leaving it ends every worker.

    Args:
        allocator: What gives memory to it and to its workers, by its name in a plan: a library is
            loaded when a process starts, and no fork can change it.

    Raises:
        InvalidPlanError: This node does not have that allocator.
    """

    def __init__(self, allocator: str = "default") -> None:
        environment = worker_environment(os.environ) | allocator_environment(allocator)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the server is
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",  # a user's launch/ in the working folder must not be taken for ours
                    "-m",
                    "launch.workers.fork_server",
                    str(theirs.fileno()),
                    str(os.getpid()),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
        self._socket = ours
        self._exits: list[WorkerExit] = []
        self._ready = False

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_until_ready(self) -> None:
        """Wait until torch is loaded; `start_worker` does so by itself.

        Raises:
            LaunchError: The server ended, or did not answer in time.
        """
        if self._ready:
            return
        self._socket.settimeout(_STARTUP_LIMIT_S)
        try:
            self._receive()
        except TimeoutError as error:
            raise LaunchError(
                f"torch was not loaded within {_STARTUP_LIMIT_S:.0f} s: is the disk busy?"
            ) from error
        self._socket.settimeout(None)
        self._ready = True

    def start_worker(self, task: Task, output: int, report: int, handles: GroupHandles) -> int:
        """Fork a worker, leader of a process group of its own.

        Args:
            task: What it does.
            output: Takes its stdout and stderr.
            report: Writing end of the pipe for its reports.
            handles: By which it meets the other workers.

        Returns:
            Its process number.
        """
        self.wait_until_ready()
        descriptors = [output, report, *handles.descriptors()]
        with contextlib.suppress(BrokenPipeError):  # the server is gone: receiving says how
            socket.send_fds(self._socket, [task.encode()], descriptors)
        while "started" not in (message := self._receive()):
            self._note_exit(message)
        return message["started"]

    def fileno(self) -> int:
        """Descriptor that is readable when a worker has ended, for `select`."""
        return self._socket.fileno()

    def take_exits(self) -> list[WorkerExit]:
        """Give the workers that have ended since the last call, in order, without waiting."""
        while select.select([self._socket], [], [], 0)[0]:
            self._note_exit(self._receive())
        exits, self._exits = self._exits, []
        return exits

    @property
    def pid(self) -> int:
        """Process number of the server."""
        return self._process.pid

    def is_gone(self) -> bool:
        """Whether the server has ended, and every worker with it."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the server and every worker, and wait until they are gone."""
        self._socket.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _note_exit(self, message: Mapping[str, int]) -> None:
        if "ended" not in message:
            return  # the start of a worker whose owner was interrupted while it waited for this
        self._exits.append(WorkerExit(message["ended"], message["code"]))

    def _last_words(self) -> str:
        """Give the last line that the server wrote, which names the exception if there was one."""
        self._errors.seek(0)
        lines = self._errors.read()[-4096:].decode(errors="replace").splitlines()
        return lines[-1] if lines else ""

    def _receive(self) -> dict[str, int]:
        try:
            message = self._socket.recv(_MAX_MESSAGE_BYTES)
        except ConnectionResetError:
            message = b""
        if not message:
            ended = explain_exit(self._process.wait())
            raise LaunchError(
                f"the process that starts workers ended: {self._last_words() or ended}"
            )
        values: dict[str, int] = json.loads(message)
        return values


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Clean an environment of what must not reach a worker.

    Threads are set per worker by its plan: libraries that start some when they are loaded
    (OpenBLAS) would make the server unfit to fork.
    """
    dropped = (*_MPI_PREFIXES, *_THREAD_PREFIXES)
    kept = {k: v for k, v in environment.items() if not k.startswith(dropped)}
    return kept | WORKER_SETTINGS


class _Server:
    """The server's side: a loop over requests and ended children."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._children: set[int] = set()
        self._wakeup, writing = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self) -> None:
        """Fork workers until the owner closes its side, or dies; then end what they started."""
        self._send({"ready": os.getpid()})
        try:
            self._answer()
        finally:
            for pid in self._children:
                kill_group(pid)

    def _answer(self) -> None:
        connection = self._connection.fileno()
        while True:
            readable, _, _ = select.select([connection, self._wakeup], [], [])
            if connection in readable:
                message, descriptors = self._receive()
                if not message:
                    return
                self._fork(message, descriptors)
            if self._wakeup in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
            self._reap()

    def _receive(self) -> tuple[bytes, list[int]]:
        """Give a request with its descriptors, nothing when the owner has gone."""
        try:
            received = socket.recv_fds(self._connection, _MAX_MESSAGE_BYTES, 16)
        except ConnectionResetError:  # gone without having read what we last said
            return b"", []
        return received[0], received[1]

    def _fork(self, message: bytes, descriptors: list[int]) -> None:
        owner = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(owner, message, descriptors)
        os.setpgid(pid, pid)  # here and not in the child: the group is there when the owner hears
        self._children.add(pid)
        for descriptor in descriptors:
            os.close(descriptor)
        self._send({"started": pid})

    def _become_worker(self, owner: int, message: bytes, descriptors: list[int]) -> NoReturn:
        status = 70
        try:
            end_with_parent(owner)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._connection.close()
            offer_to_oom_killer()
            output, report, *meeting = descriptors
            for standard in (1, 2):
                os.dup2(output, standard)
            os.close(output)
            faulthandler.register(SAY_WHERE, all_threads=True)
            from launch.workers.worker import run

            status = run(Task.decode(message), report, GroupHandles.from_descriptors(meeting))
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # Without the server's own clean-up: this process is only a copy of it.
            os._exit(status)

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = ended.si_pid
                # What it may have started and left behind. Before its number is free: the kernel
                # could give it to another group.
                kill_group(pid)
                self._children.discard(pid)
                _, wait_status = os.waitpid(pid, 0)
                code = os.waitstatus_to_exitcode(wait_status)  # negative for a signal
                self._send({"ended": pid, "code": code})

    def _send(self, message: Mapping[str, int]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(json.dumps(message).encode())


def _main(descriptor: int, parent: int) -> None:
    end_with_parent(parent)
    gc.disable()  # looking for garbage takes a quarter of the time of these imports
    import torchvision  # noqa: F401 - loaded here so that no worker has to

    import launch.workers.worker  # noqa: F401

    gc.collect()
    gc.freeze()  # a collection in a worker would otherwise copy every shared page
    gc.enable()
    server = _Server(socket.socket(fileno=descriptor))
    # From here on the socket says when the owner is gone. The kernel's way would leave no time to
    # end what workers have started.
    outlive_parent()
    server.serve()


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)  # nothing of torch's needs an orderly end, which takes long and is noisy

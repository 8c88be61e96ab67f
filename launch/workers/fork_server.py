"""Fork server: a process that has loaded torch and forks workers, so that they start fast.

Importing torch and torchvision takes seconds on every core. One process per node does it, stays
at a single thread, touches no GPU, and forks a worker on request: in milliseconds, with the
library's pages shared by all. Trials and training start their workers in this same way.

The server is started by `exec` and never imports mpi4py, so nothing here forks a process that
has called MPI_Init. When its owner ends, it ends all workers, what they have started, and itself;
when it ends, the kernel ends the workers.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn

from launch.errors import LaunchError
from launch.gradient_sync.node_channel.descriptors import SharedDescriptors, anonymous_file
from launch.process_environment.allocators import allocator_environment
from launch.process_environment.openmp import wait_environment
from launch.system.process_end import (
    die_with_parent,
    explain_exit,
    kill_group,
    outlive_parent,
    prefer_for_oom_kill,
)
from launch.system.temporary_folder import TemporaryFolder
from launch.workers.task import Task
from probes import codec
from probes.child_process import module_command

_MAX_MESSAGE_BYTES = 4096
"""Of what owner and server say. A task comes in a file: the names of 4096 hosts may have more than
the 208 KiB that the kernel takes as one message."""

_MOST_FOLDER_BYTES = 107 - len("/ddlplan-12345678/listener-12345678")
"""Of the folder for temporary files: a socket's path has 107 bytes at most (unix(7)), and loader
processes whose socket cannot be opened wait for it without end."""

_STARTUP_LIMIT_S = 120.0

DUMP_STACKS = signal.SIGQUIT
"""Has a worker write the stacks of its threads into its log."""

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
"""Variables that each worker's environment has."""

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
    """The owner's side of a fork server. Use it in a ``with`` block; leaving it ends every worker.

    Args:
        allocator: Memory allocator of it and of its workers, by its name in a plan: a library is
            loaded when a process starts, and no fork can change it.
        wait_policy: How OpenMP's threads wait, of `launch.process_environment.openmp`; likewise.

    Raises:
        InvalidPlanError: This node does not have that allocator.
    """

    def __init__(self, allocator: str = "default", wait_policy: str = "default") -> None:
        environment = {
            **worker_environment(os.environ),
            **allocator_environment(allocator),
            **wait_environment(wait_policy),
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, contextlib.ExitStack() as opened:
            opened.enter_context(ours)
            self._errors = opened.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                module_command(
                    "launch.workers.fork_server", str(theirs.fileno()), str(os.getpid())
                ),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
            opened.pop_all()
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
            LaunchError: The server ended, or was not ready in time.
        """
        if self._ready:
            return
        try:
            self._socket.settimeout(_STARTUP_LIMIT_S)
            self._receive()
        except TimeoutError as error:
            raise LaunchError(
                f"torch was not loaded within {_STARTUP_LIMIT_S:.0f} s: is the disk busy?"
            ) from error
        finally:  # after a Ctrl-C too: with a limit, even MSG_DONTWAIT waits that long
            self._socket.settimeout(None)
        self._ready = True

    def start_worker(
        self, task: Task, output: int, report: int, permits: int, descriptors: SharedDescriptors
    ) -> int:
        """Fork a worker, leader of a process group of its own.

        Args:
            task: What it does.
            output: Takes its stdout and stderr.
            report: Writing end of the pipe for its reports.
            permits: Its step permits, which count in trials alone.
            descriptors: Shared with the other workers.

        Returns:
            Its process number.
        """
        self.wait_until_ready()
        with os.fdopen(anonymous_file(b"ddlplan-task"), "wb") as document:
            document.write(codec.encode(task))
            document.seek(0)  # which writes what is buffered; the worker reads from here
            numbers = [document.fileno(), output, report, permits, *descriptors.numbers()]
            with contextlib.suppress(BrokenPipeError):  # the server has ended: receiving raises how
                socket.send_fds(self._socket, [b"start"], numbers)
        while "started" not in (message := self._receive()):
            self._record_exit(message)
        # The kernel may give a number again; who had it before has been heard by now.
        self._exits = [ended for ended in self._exits if ended.pid != message["started"]]
        return message["started"]

    def fileno(self) -> int:
        """Descriptor that is readable when a worker has ended, for `select`."""
        return self._socket.fileno()

    def take_exits(self, pids: Collection[int]) -> list[WorkerExit]:
        """Return those of some workers that have ended, in order, without waiting.

        The ends of other workers are kept for whoever asks for them.
        """
        if self._socket.fileno() < 0:
            raise LaunchError("the process that starts workers has ended")
        with contextlib.suppress(BlockingIOError):
            while True:
                self._record_exit(self._receive(socket.MSG_DONTWAIT))
        exits = [ended for ended in self._exits if ended.pid in pids]
        self._exits = [ended for ended in self._exits if ended.pid not in pids]
        return exits

    @property
    def pid(self) -> int:
        """Process number of the server."""
        return self._process.pid

    def is_gone(self) -> bool:
        """Whether the server has ended, and every worker with it."""
        return self._process.poll() is not None

    def close(self) -> None:
        """End the server and every worker, and wait for their ends."""
        if not self._ready:
            self._process.kill()  # it has no worker yet, and looks up only once torch is loaded
        self._socket.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _record_exit(self, message: Mapping[str, int]) -> None:
        if "ended" not in message:
            return  # the start of a worker whose owner was interrupted while it waited for this
        self._exits.append(WorkerExit(message["ended"], message["code"]))

    def _receive(self, flags: int = 0) -> dict[str, int]:
        try:
            message = self._socket.recv(_MAX_MESSAGE_BYTES, flags)
        except ConnectionResetError:
            message = b""
        if not message:
            ended = explain_exit(self._process.wait())
            self._errors.seek(0)
            said = self._errors.read()[-4096:].decode(errors="replace").rstrip()
            last = said.rpartition("\n")[2]  # names the exception, if there was one
            raise LaunchError(f"the process that starts workers ended: {last or ended}")
        return codec.decode(message, dict[str, int], source="fork server")


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Remove from an environment what must not reach a worker.

    Threads are set per worker by its plan: libraries that start some when they are loaded
    (OpenBLAS) would make the server unfit to fork.
    """
    dropped = (*_MPI_PREFIXES, *_THREAD_PREFIXES)
    own = {k: v for k, v in environment.items() if not k.startswith(dropped)}
    return own | WORKER_SETTINGS


class _Server:
    """The server's side: a loop over requests and ended children."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._children: set[int] = set()
        self._folder: TemporaryFolder | None = None
        self._wakeup, writing = os.pipe()
        os.set_blocking(self._wakeup, False)
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def serve(self) -> None:
        """Fork workers until the owner closes its side or dies; then end what they started."""
        self._send({"ready": os.getpid()})
        try:
            self._serve_requests()
        finally:
            for pid in self._children:
                kill_group(pid)
            for pid in self._children:  # or they could write into the folder once it is removed
                os.waitpid(pid, 0)
            if self._folder is not None:
                self._folder.close()

    def _serve_requests(self) -> None:
        connection = self._connection.fileno()
        while True:
            readable, _, _ = select.select([connection, self._wakeup], [], [])
            if connection in readable:
                message, numbers = self._receive()
                if not message:
                    return
                self._fork(numbers)
            if self._wakeup in readable:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
            self._reap()

    def _receive(self) -> tuple[bytes, list[int]]:
        """Receive a request with its descriptors, nothing when the owner has ended."""
        try:
            received = socket.recv_fds(self._connection, _MAX_MESSAGE_BYTES, 32)
        except ConnectionResetError:  # ended without having read our last message
            return b"", []
        return received[0], received[1]

    def _fork(self, numbers: list[int]) -> None:
        owner = os.getpid()
        self._folder = self._folder or _make_socket_folder()
        pid = os.fork()
        if pid == 0:
            self._run_worker(owner, numbers)
        os.setpgid(pid, pid)  # here, not in the child: the group exists before the reply
        self._children.add(pid)
        for descriptor in numbers:
            os.close(descriptor)
        self._send({"started": pid})

    def _run_worker(self, owner: int, numbers: list[int]) -> NoReturn:
        status = 70
        try:
            die_with_parent(owner)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._connection.close()
            prefer_for_oom_kill()
            document, output, report, permits, *shared = numbers
            for standard in (1, 2):
                os.dup2(output, standard)
            os.close(output)
            faulthandler.register(DUMP_STACKS, all_threads=True)
            from launch.workers.worker import run

            with os.fdopen(document, "rb") as file:
                task = codec.decode(file.read(), Task, source="task", allow_unknown_keys=False)
            status = run(task, report, permits, SharedDescriptors.from_numbers(shared))
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:  # noqa: BLE001 - whatever it is, nobody else would say it
            traceback.print_exc()
        finally:
            os._exit(status)  # without the server's clean-up: this process is only a copy of it

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = ended.si_pid
                # What it has left behind; before its number is free, which another could get.
                kill_group(pid)
                self._children.discard(pid)
                _, wait_status = os.waitpid(pid, 0)
                code = os.waitstatus_to_exitcode(wait_status)  # negative for a signal
                self._send({"ended": pid, "code": code})

    def _send(self, message: Mapping[str, int]) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(codec.encode(message))


def _make_socket_folder() -> TemporaryFolder:
    """Make one folder for the sockets of all workers' loader processes.

    multiprocessing makes one for each process that has some, and removes it as Python ends: workers
    end before that, or are ended. So may be the server, until it is asked for its first worker.
    """
    inside = tempfile.gettempdir()
    if len(os.fsencode(inside)) > _MOST_FOLDER_BYTES:
        inside = "/tmp"  # noqa: S108 - the folder in it has a name of its own and is the user's alone
    folder = TemporaryFolder(inside)
    multiprocessing.current_process()._config["tempdir"] = str(folder.path)  # type: ignore[attr-defined]
    return folder


def _main(descriptor: int, parent: int) -> None:
    # Slurm sends what is meant for a rank to every process that the rank has started, too, unless
    # it follows processes by control groups. Workers inherit that these are ignored.
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
    die_with_parent(parent)
    gc.disable()  # looking for garbage takes a quarter of the time of these imports
    import torchvision  # noqa: F401 - loaded here so that no worker has to

    import launch.workers.worker  # noqa: F401

    gc.collect()
    gc.freeze()  # a collection in a worker would otherwise copy every shared page
    gc.enable()
    server = _Server(socket.socket(fileno=descriptor))
    # From here on the socket shows the owner's end. The kernel's signal would leave no time to end
    # what workers have started.
    outlive_parent()
    server.serve()


if __name__ == "__main__":
    _main(int(sys.argv[1]), int(sys.argv[2]))
    os._exit(0)  # nothing of torch's needs an orderly end, which takes long and is noisy

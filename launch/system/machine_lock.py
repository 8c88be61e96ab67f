"""Machine lock: what is timed has the machine for itself; trainings say that they run.

Two programs that time something on one machine time each other. So each takes the machine's one
place for timing first, and waits while another has it or a training runs. A training waits for
nobody: it takes a place of its own and learns whom it disturbs.

A place is a file, and it is taken by a lock on that file (flock), which the kernel lifts when its
process ends, also by ``kill -9``. The text in the file only says who has it. The folder is the same
for all users: the first of `FOLDERS` in which everybody may make files and nobody can remove those
of others. Containers see each other only where they share it: ``DDLPLAN_LOCKS`` names another one.

Everybody may also make a file of such a name, so none is followed to elsewhere, and none that has
a second name is written to. One that cannot be used makes a warning, never an error.
"""

from __future__ import annotations

import fcntl
import os
import platform
import pwd
import shlex
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil

from launch.errors import MachineBusyError
from launch.system.cache import try_lock
from launch.system.durable_files import explain_os_error
from launch.system.process_identity import ProcessIdentity
from probes import codec
from probes.errors import InvalidDocumentError

FOLDERS = (Path("/run/lock"), Path("/tmp"))  # noqa: S108 - see above
_FOLDER_VARIABLE = "DDLPLAN_LOCKS"

_OPEN_TO_ALL = stat.S_IWOTH | stat.S_ISVTX
_TIMING = "ddlplan-timing.lock"
_TRAINING = "ddlplan-training-{}.lock"
_MOST_TRAININGS = 64
"""Places for them: one that finds none goes unnoticed."""

_POLL_S = 0.5
_TRIES, _RETRY_S = 4, 0.02
"""Whoever looks at a place has it for microseconds."""

_MAX_TEXT_BYTES = 4096
_MAX_COMMAND = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """Process that has a place, as it describes itself."""

    pid: int
    user: str
    command: str

    since: str
    """Time in UTC; empty where it is not known."""

    host: str
    """Name of the machine, or of the container."""

    job: str = ""
    """The same for all ranks of a job: those that share a machine share its place for timing."""

    process: ProcessIdentity | None = None
    """Tells it from others of its number; ``None`` where an earlier release has written this."""

    @staticmethod
    def of_this_process(command: str | None = None, job: str = "") -> Occupant:
        """Describe this process, by its command line unless another is given."""
        return Occupant(
            pid=os.getpid(),
            user=_user_name(os.getuid()),
            command=(command or _command_line())[:_MAX_COMMAND],
            since=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            host=platform.node(),
            job=job,
            process=ProcessIdentity.of(),
        )

    def __str__(self) -> str:
        if self == UNKNOWN:
            return "another process"
        where = "" if self.host == platform.node() else f" in {self.host}"
        since = f", since {self.since}" if self.since else ""
        text = f"process {self.pid} of {self.user}{where}{since}: {self.command}"
        return "".join(c if c.isprintable() else "?" for c in text)  # another user wrote it

    def is_ancestor(self) -> bool:
        """Tell whether this process runs below it, in a script that it launches or times.

        A search in there would wait for the end of what waits for it. A training is what is timed.
        Containers may have the same host name, and processes of the same numbers.
        """
        if self.host != platform.node():
            return False
        with suppress(psutil.Error):  # of one that ends meanwhile, or may not be looked at
            above = psutil.Process().parent()
            while above is not None:
                if above.pid == self.pid:
                    return self.process in (None, ProcessIdentity.of(above.pid))
                above = above.parent()
        return False


UNKNOWN = Occupant(pid=0, user="?", command="?", since="?", host=platform.node())
"""Stands for one that neither describes itself nor is known to the kernel."""


@contextmanager
def timing_alone(
    occupant: Occupant,
    *,
    waits: bool,
    on_wait: Callable[[str], None],
    on_trouble: Callable[[str], None],
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[None]:
    """Have the machine's place for timing in this block.

    Args:
        occupant: Who takes it.
        waits: Whether to wait while it is taken, or while a training runs.
        on_wait: Receives for whom this waits, each time when that is somebody else.
        on_trouble: Receives why there can be no lock; the block then runs without one.
        pause: Waits for some seconds; it may raise.

    Raises:
        MachineBusyError: It is taken, or a training runs, and ``waits`` is false; or it is taken by
            a process below which this one runs, as in a script that is timed.
    """
    with ExitStack() as places:
        told = None
        while (other := _guarded(lambda: _try_timing(places, occupant), on_trouble)) is not None:
            if other.is_ancestor():
                raise MachineBusyError(
                    f"this machine is in use by {other}: it runs this command, and each would wait "
                    "for the other: run this one by itself"
                )
            if not waits:
                raise MachineBusyError(
                    f"this machine is in use by {other}: leave out --no-wait to wait for its end"
                )
            if (other.host, other.pid) != told:
                on_wait(f"waiting for {other}")
                told = other.host, other.pid
            pause(_POLL_S)
        yield


@contextmanager
def training_noticed(occupant: Occupant, warn: Callable[[str], None]) -> Iterator[None]:
    """Let whoever would time something wait for this block.

    Args:
        occupant: Who trains.
        warn: Receives whose times are disturbed, where something is timed already, and why there
            can be no lock.
    """
    with ExitStack() as places:
        other = _guarded(lambda: _take_training(places, occupant), warn)
        if other is not None and not other.is_ancestor():
            warn(f"this training disturbs the times that are measured by {other}")
        yield


def _guarded(
    take: Callable[[], Occupant | None], on_trouble: Callable[[str], None]
) -> Occupant | None:
    try:
        return take()
    except OSError as error:
        on_trouble(
            f"{explain_os_error(error)}: ddlplan cannot see what else is timed on this machine; "
            f"let {_FOLDER_VARIABLE} name a folder that all its users may write to"
        )
        return None


def _try_timing(places: ExitStack, occupant: Occupant) -> Occupant | None:
    """Take the lock for timing; where it is not free, give who times or trains."""
    folder = _find_folder()
    place = _Place(folder / _TIMING)
    while not place.try_take(occupant):
        if (other := place.find_occupant()) is not None:  # else it was left meanwhile: try again
            return None if other.job and other.job == occupant.job else other
    for file in sorted(folder.glob(_TRAINING.format("*"))):
        with suppress(OSError):  # another one may be removed, or not be ours to open
            training = _Place(file).find_occupant()
            if training is not None and not training.is_ancestor():
                place.release()
                return training
    places.callback(place.release)
    return None


def _take_training(places: ExitStack, occupant: Occupant) -> Occupant | None:
    """Take a place for a training; give who times something meanwhile."""
    folder = _find_folder()
    for number in range(_MOST_TRAININGS):
        place = _Place(folder / _TRAINING.format(number))
        with suppress(PermissionError):  # somebody made it for himself: the next one
            if place.try_take(occupant):
                places.callback(place.release)
                break
    return _Place(folder / _TIMING).find_occupant()


class _Place:
    """A file to lock."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def try_take(self, occupant: Occupant) -> bool:
        """Take the place; tell whether it was free."""
        for _ in range(_TRIES):
            descriptor = self._open()
            if try_lock(descriptor):
                if self._is_at_path(descriptor):
                    self._descriptor = descriptor
                    _write(descriptor, codec.encode(occupant))
                    return True
            else:
                time.sleep(_RETRY_S)
            os.close(descriptor)  # taken, or removed meanwhile
        return False

    def find_occupant(self) -> Occupant | None:
        """Find out who has the place; ``None`` where nobody does."""
        if not self._path.exists():
            return None
        descriptor = self._open()
        try:
            return None if try_lock(descriptor, fcntl.LOCK_SH) else _read(descriptor)
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Leave the place."""
        if self._descriptor is not None:
            _write(self._descriptor, b"")
            # Not by closing alone: a process that was forked meanwhile has the file open too.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        """Open the file, made where there is none, and see that it is a plain one."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = None
        while descriptor is None:
            with suppress(FileNotFoundError):
                descriptor = os.open(self._path, flags)
            if descriptor is None:
                with suppress(FileExistsError):  # another process was faster
                    descriptor = os.open(self._path, flags | os.O_CREAT | os.O_EXCL, 0o666)
                    os.fchmod(descriptor, 0o666)  # whatever the umask
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            os.close(descriptor)
            raise OSError(0, "it is no plain file", str(self._path))
        return descriptor

    def _is_at_path(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), os.lstat(self._path))
        return False


def _find_folder() -> Path:
    """Find the folder of the locks."""
    if named := os.environ.get(_FOLDER_VARIABLE):
        return Path(named)
    for folder in FOLDERS:
        with suppress(OSError):
            if folder.stat().st_mode & _OPEN_TO_ALL == _OPEN_TO_ALL:
                return folder
    raise OSError(0, "all users may write to neither", " and ".join(map(str, FOLDERS)))


def _write(descriptor: int, text: bytes) -> None:
    with suppress(OSError):  # a full disk: the lock counts, not the text
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text[:_MAX_TEXT_BYTES], 0)


def _read(descriptor: int) -> Occupant:
    try:
        text = os.pread(descriptor, _MAX_TEXT_BYTES, 0)
        return codec.decode(text, Occupant, source="occupant")
    except InvalidDocumentError:
        return _find_in_kernel(descriptor)


def _find_in_kernel(descriptor: int) -> Occupant:
    """Describe who has the lock on a file by what the kernel knows (proc_locks(5))."""
    found = os.fstat(descriptor)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with suppress(OSError):  # ended meanwhile, or in another container
        for line in Path("/proc/locks").read_text().splitlines():
            match line.split():
                case [_, "FLOCK", _, "WRITE", pid, locked, *_] if locked == place:
                    process = Path("/proc", pid)
                    words = os.fsdecode((process / "cmdline").read_bytes()).split("\0")[:-1]
                    return Occupant(
                        pid=int(pid),
                        user=_user_name(process.stat().st_uid),
                        command=shlex.join(words)[:_MAX_COMMAND],
                        since="",
                        host=platform.node(),
                        process=ProcessIdentity.of(int(pid)),
                    )
    return UNKNOWN


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _command_line() -> str:
    program = Path(sys.argv[0])
    name = "ddlplan" if program.parts[-2:] == ("planner", "__main__.py") else program.name
    return shlex.join([name, *sys.argv[1:]])

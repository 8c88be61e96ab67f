"""Log of a worker: a file of bounded size, and what its last lines show."""

from __future__ import annotations

import os
import re
import sysconfig
from pathlib import Path

from launch.system.log_part import read_log_part

_MAX_BYTES = 8 * 2**20
_TAIL_BYTES = 1 << 14
_OMISSION_NOTE = b"\n[... %d bytes are left out here ...]\n"
_OUT_OF_MEMORY = (
    *("can't allocate memory", "not enough memory", "out of memory", "Cannot allocate"),
    *("_ALLOC_FAILED", "_ALLOCATION_FAILED"),  # of cuBLAS and cuDNN
)
_FULL_SHARED_MEMORY = (
    *("unable to allocate shared memory(shm)", "unable to write to file </torch_"),
    "dataloader's workers are out of shared memory",  # killed by SIGBUS
)
"""Words of torch about /dev/shm where a loading process puts a batch into it, by release."""
_NCCL_FILE, _NO_SPACE = "shm/nccl-", "No space left on device"
_LOADER, _LOADER_KILLED = "DataLoader worker", "is killed by signal: Killed"
KILLED_FOR_MEMORY = "(out of memory)"
"""Behind the signal of a worker that the kernel has ended because memory was short."""

_RAISED = re.compile(r"\b(\w*(?:Error|Exception): .+)")
_ENDED = re.compile(r"^(?:traceback : )?(Signal \d+ .+|exitcode +: .+)")
"""In the table that torchrun prints of processes that failed."""

_FOLDERS = map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))
_LIBRARIES = tuple(f'File "{folder}/' for folder in _FOLDERS)


class BoundedLog:
    """A file that never becomes larger than a limit; only the user can read it.

    Bytes that it has already count too. When it is full, only its first and its last quarter
    stay: a process that prints for ever must not fill a disk, and both its start and its end help
    to find a fault.
    """

    def __init__(self, path: Path, max_bytes: int = _MAX_BYTES) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._file).st_size
        self._max_bytes = max_bytes
        self._part_bytes = max_bytes // 4
        self._left_out_bytes = 0

    def write(self, block: bytes) -> None:
        """Append what a process has written; a full disk is no error."""
        for start in range(0, len(block), self._part_bytes):
            piece = block[start : start + self._part_bytes]
            if self._size + len(piece) > self._max_bytes:
                self._shorten()
            self._append(piece)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _shorten(self) -> None:
        tail = os.pread(self._file, self._part_bytes, self._size - self._part_bytes)
        self._left_out_bytes += self._size - 2 * self._part_bytes
        os.ftruncate(self._file, self._part_bytes)
        self._size = self._part_bytes
        self._append(_OMISSION_NOTE % self._left_out_bytes + tail)

    def _append(self, block: bytes) -> None:
        try:
            self._size += os.write(self._file, block)
        except OSError:
            return


def read_tail(path: Path, lines: int) -> str:
    """Read the last lines of a file, nothing where there is none."""
    text = read_log_part(path, -_TAIL_BYTES, _TAIL_BYTES).text
    return "\n".join(text.splitlines()[-lines:])


def find_cause(log: str) -> str:
    """Find the words of a log that say best why something ended.

    The last exception with a message: launchers add ones of their own without. Else what torchrun
    says of its process's end, else the last line that names an error, else the last one.
    """
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    raised = [found[1] for line in lines if (found := _RAISED.search(line))]
    ended = [found[1] for line in lines if (found := _ENDED.search(line))]
    named = [line for line in lines if "error" in line.lower()]
    return (raised or ended or named or lines or [""])[-1][:200]


def tells_out_of_memory(text: str) -> bool:
    """Whether an error's message says that memory was short."""
    return any(words in text for words in _OUT_OF_MEMORY)


def lacks_shared_memory(text: str) -> bool:
    """Whether an error's message says that no room is left in /dev/shm."""
    told_by_loader = any(words in text for words in _FULL_SHARED_MEMORY)
    return told_by_loader or (_NCCL_FILE in text and _NO_SPACE in text)


def tells_killed_loader(text: str) -> bool:
    """Whether an error's message says that a loading process was killed."""
    return _LOADER_KILLED in text


def involves_loaders(text: str) -> bool:
    """Whether loading processes may have had the memory that was short, by an error's message.

    One of them found none, or the kernel has ended a worker: it takes the largest process, whoever
    has the rest. No words about a GPU's memory say so.
    """
    return _LOADER in text or KILLED_FOR_MEMORY in text


def find_user_frame(log: str) -> str | None:
    """Find the line at which a stuck worker waits: the innermost of the user's own, else of all.

    Args:
        log: Its end, with the stacks that `launch.workers.group.WorkerGroup.dump_stacks` requests.

    Returns:
        Such as ``File "case.py", line 7 in dataset``; ``None`` without a dump.
    """
    *_, stack = log.rpartition("Current thread ")
    frames = [line.strip() for line in stack.splitlines()[1:] if line.startswith("  File ")]
    own = [frame for frame in frames if not frame.startswith(_LIBRARIES)]
    return next(iter(own or frames), None)

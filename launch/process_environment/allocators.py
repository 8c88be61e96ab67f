"""Memory allocators of workers: the C library's, or one loaded in its place."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from glob import glob
from pathlib import Path

from launch.errors import InvalidPlanError

# What a folder's file is called. tcmalloc without its profiler first: it starts quicker.
_FILES = {
    "jemalloc": ("libjemalloc.so.2", "libjemalloc.so"),
    "tcmalloc": (
        *("libtcmalloc_minimal.so.4", "libtcmalloc_minimal.so"),
        *("libtcmalloc.so.4", "libtcmalloc.so"),
    ),
}
_PACKAGES = {"jemalloc": "libjemalloc2", "tcmalloc": "libtcmalloc-minimal4"}

# Both keep freed memory, as "retain" does: a step that gives its activations back to the kernel
# has them faulted in again, zeroed, by the next one.
_SETTINGS = {
    # As PyTorch's tuning guide sets it, https://docs.pytorch.org/tutorials/recipes/recipes/
    # tuning_guide.html, but without background_thread: it would start a thread in the process that
    # forks workers, and purge what is never purged here.
    "jemalloc": {
        "MALLOC_CONF": "oversize_threshold:1,metadata_thp:auto,dirty_decay_ms:-1,muzzy_decay_ms:-1"
    },
    # https://github.com/gperftools/gperftools/blob/master/docs/tcmalloc.html: 0 is never to give
    # back; large blocks, which are usual here, are not to be reported on stderr.
    "tcmalloc": {
        "TCMALLOC_RELEASE_RATE": "0",
        "TCMALLOC_LARGE_ALLOC_REPORT_THRESHOLD": str(2**62),
    },
}

_LOADER_CONFIGURATION = Path("/etc/ld.so.conf")
_STANDARD_FOLDERS = ("/usr/local/lib", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
_ELF = b"\x7fELF"
_ELF_HEADER_BYTES = 20

# Numbers of malloc.h.
_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -3, -4, -8


def find_allocators(environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Find the libraries that can be loaded in place of the C library's allocator, by name."""
    folders = list(_library_folders(environment))
    found: dict[str, Path] = {}
    for name, files in _FILES.items():
        candidates = (folder / file for folder in folders for file in files)
        if (path := next(filter(_is_loadable, candidates), None)) is not None:
            found[name] = path
    return found


def is_preloaded(allocator: str) -> bool:
    """Whether an allocator has to be loaded when a process starts."""
    return allocator in _FILES


def allocator_environment(
    allocator: str, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the variables with which a process starts with an allocator; none for the C library's.

    Raises:
        InvalidPlanError: This node does not have it.
    """
    if not is_preloaded(allocator):
        return {}
    library = find_allocators(environment).get(allocator)
    if library is None:
        raise InvalidPlanError(
            f"allocator={allocator} and no library of it on this host: install "
            f"{_PACKAGES[allocator]}, or use allocator=retain"
        )
    others = environment.get("LD_PRELOAD", "")
    return {"LD_PRELOAD": f"{library} {others}".strip(), **_SETTINGS[allocator]}


def plain_environment(allocator: str) -> dict[str, str]:
    """Return variables that choose an allocator for a program that is none of ours.

    A library is named without its folder: the loader of any machine knows where it lies, and says
    so where it is missing.
    """
    if allocator == "retain":  # as `_retain_freed_memory`, in the words of mallopt(3)
        return {
            "MALLOC_ARENA_MAX": "1",
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TOP_PAD_": str(64 << 20),
            "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
        }
    if not is_preloaded(allocator):
        return {}
    return {"LD_PRELOAD": _FILES[allocator][0], **_SETTINGS[allocator]}


def set_allocator(allocator: str) -> None:
    """Configure this process's allocator for a plan.

    Raises:
        InvalidPlanError: The process was to be started with a library, and it was not loaded.
    """
    if allocator == "retain":
        _retain_freed_memory()
    mapped = Path("/proc/self/maps").read_bytes()  # names of files need not be text
    if is_preloaded(allocator) and f"lib{allocator}".encode() not in mapped:
        raise InvalidPlanError(
            f"allocator={allocator} and a loader that left it out of this process: the log says "
            "why, use allocator=retain"
        )


def _retain_freed_memory() -> None:
    """Keep freed memory in the process, however large the block.

    By default glibc asks the kernel for every block above 32 MiB and gives it back when it is
    freed, so that each step faults its activations in again, page by page, zeroed. Threads
    beside the main one would have arenas of 64 MiB at most, so all are sent to the main arena.
    """
    import ctypes  # in workers alone

    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):
        return  # musl: its allocator has no such setting
    libc.mallopt(_M_ARENA_MAX, 1)
    libc.mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(_M_TOP_PAD, 64 << 20)
    if not libc.mallopt(_M_MMAP_THRESHOLD, 2**31 - 1):  # older glibc refuses more than 32 MiB
        libc.mallopt(_M_MMAP_MAX, 0)


def _library_folders(environment: Mapping[str, str]) -> Iterator[Path]:
    """List the folders of libraries, a user's own first."""
    for text in environment.get("LD_LIBRARY_PATH", "").split(":"):
        if text:
            yield Path(text)
    if prefix := environment.get("CONDA_PREFIX"):
        yield Path(prefix, "lib")
    yield Path(sys.prefix, "lib")
    yield from _configured_folders(_LOADER_CONFIGURATION)
    yield from map(Path, _STANDARD_FOLDERS)


def _configured_folders(file: Path) -> Iterator[Path]:
    """Follow the loader's configuration: folders, and other files of the same kind."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        for line in file.read_text().splitlines():
            match line.partition("#")[0].split():
                case ["include", pattern]:
                    for included in sorted(glob(str(file.parent / pattern))):  # noqa: PTH207 - may be absolute
                        yield from _configured_folders(Path(included))
                case [folder]:
                    yield Path(folder)


def _is_loadable(library: Path) -> bool:
    """Whether a file is a library for the processor that this Python runs on."""
    header, own = _elf_header(library), _elf_header(Path(sys.executable))
    return header is not None and header == own


def _elf_header(path: Path) -> bytes | None:
    """Give word size, byte order and processor of a program, ``None`` where it is none.

    Source: elf(5), ``e_ident`` and ``e_machine``.
    """
    with contextlib.suppress(OSError), path.open("rb") as file:
        header = file.read(_ELF_HEADER_BYTES)
        if header.startswith(_ELF):
            return header[4:6] + header[18:20]
    return None

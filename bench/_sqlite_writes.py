"""Record of what SQLite writes, and what of it is surely on the disk at each moment.

SQLite reaches files through a table of functions, its VFS (https://www.sqlite.org/vfs.html). Here
that table is wrapped, in this process, so that each write, truncation, sync and removal is put on
record as it happens. From the record follows what a disk may hold when the power is cut: all that
was synced, and any part of what was not.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_POINTERS_OF_FILE = 18
_POINTERS_OF_VFS = 15

_Open = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_void_p,  # SQLite keeps this address, so the text must be its own
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_void_p,
)
_Delete = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int)
_Write = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
)
_Truncate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64)
_Sync = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_Close = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _FileMethods(ctypes.Structure):
    """``sqlite3_io_methods``."""

    _fields_ = (("version", ctypes.c_int), ("calls", ctypes.c_void_p * _POINTERS_OF_FILE))


class _Vfs(ctypes.Structure):
    """``sqlite3_vfs``."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("longest_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("own", ctypes.c_void_p),
        ("calls", ctypes.c_void_p * _POINTERS_OF_VFS),
    )


_CLOSE, _WRITE, _TRUNCATE, _SYNC = 0, 2, 3, 4
_OPEN, _DELETE = 0, 1


@dataclass(frozen=True, slots=True)
class Operation:
    """One change to files."""

    kind: str
    """``create``, ``write``, ``truncate``, ``sync``, ``delete`` or ``committed``."""

    file: str = ""
    place: int = 0
    """Of a write; length that a truncation leaves; whether a removal syncs the folder."""

    data: bytes = b""


class _Usual:
    """What SQLite itself does with a file."""

    def __init__(self, methods: _FileMethods) -> None:
        self.close, self.write = _Close(methods.calls[_CLOSE]), _Write(methods.calls[_WRITE])
        self.truncate = _Truncate(methods.calls[_TRUNCATE])
        self.sync = _Sync(methods.calls[_SYNC])


class Recorder:
    """The record of this process's SQLite; use `record` around what is to be on it."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._is_on = False
        self._files: dict[int, tuple[str, _Usual]] = {}
        self._methods: dict[int, _FileMethods] = {}
        self._kept: list[object] = []
        library = ctypes.CDLL("libsqlite3.so.0")
        library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
        library.sqlite3_vfs_register.argtypes = (ctypes.POINTER(_Vfs), ctypes.c_int)
        usual = library.sqlite3_vfs_find(None).contents
        wrapped = _Vfs.from_buffer_copy(usual)
        wrapped.name = b"recording"
        wrapped.next = None
        self._open = _Open(usual.calls[_OPEN])
        self._delete = _Delete(usual.calls[_DELETE])
        calls = (_Open(self._on_open), _Delete(self._on_delete))
        wrapped.calls[_OPEN] = ctypes.cast(calls[0], ctypes.c_void_p).value
        wrapped.calls[_DELETE] = ctypes.cast(calls[1], ctypes.c_void_p).value
        self._kept += [wrapped, *calls]
        library.sqlite3_vfs_register(ctypes.byref(wrapped), 1)

    @contextmanager
    def record(self) -> Iterator[None]:
        """Put on record what SQLite does in this block."""
        self._is_on = True
        try:
            yield
        finally:
            self._is_on = False

    def committed(self) -> None:
        """Note that a transaction was acknowledged."""
        self.operations.append(Operation("committed"))

    def _note(self, kind: str, file: str, place: int = 0, data: bytes = b"") -> None:
        if self._is_on:
            self.operations.append(Operation(kind, Path(file).name, place, data))

    def _on_open(self, vfs: int, name: int | None, file: int, flags: int, given: int) -> int:
        path = None if name is None else ctypes.string_at(name).decode()
        is_new = path is not None and not Path(path).exists()
        result = int(self._open(vfs, name, file, flags, given))
        if result == 0 and path is not None:
            place = ctypes.cast(file, ctypes.POINTER(ctypes.POINTER(_FileMethods)))
            usual = ctypes.cast(place[0], ctypes.c_void_p).value
            assert usual is not None
            self._files[file] = path, _Usual(place[0].contents)
            if is_new:
                self._note("create", path)
            # Journals have another table than databases.
            if usual not in self._methods:
                self._methods[usual] = self._wrap(place[0].contents)
            place[0] = ctypes.pointer(self._methods[usual])
        return result

    def _wrap(self, usual: _FileMethods) -> _FileMethods:
        wrapped = _FileMethods.from_buffer_copy(usual)
        calls = {
            _CLOSE: _Close(self._on_close),
            _WRITE: _Write(self._on_write),
            _TRUNCATE: _Truncate(self._on_truncate),
            _SYNC: _Sync(self._on_sync),
        }
        for number, call in calls.items():
            wrapped.calls[number] = ctypes.cast(call, ctypes.c_void_p).value
        self._kept += calls.values()
        return wrapped

    def _on_close(self, file: int) -> int:
        return int(self._files.pop(file)[1].close(file))

    def _on_write(self, file: int, data: int, count: int, place: int) -> int:
        path, usual = self._files[file]
        if self._is_on:
            self._note("write", path, place, ctypes.string_at(data, count))
        return int(usual.write(file, data, count, place))

    def _on_truncate(self, file: int, size: int) -> int:
        path, usual = self._files[file]
        self._note("truncate", path, size)
        return int(usual.truncate(file, size))

    def _on_sync(self, file: int, flags: int) -> int:
        path, usual = self._files[file]
        result = int(usual.sync(file, flags))
        self._note("sync", path)
        return result

    def _on_delete(self, vfs: int, name: bytes, syncs_folder: int) -> int:
        result = int(self._delete(vfs, name, syncs_folder))
        self._note("delete", name.decode(), syncs_folder)
        return result


@dataclass(slots=True)
class _File:
    """Content of a file: what is surely on the disk, and what may be."""

    sure: bytearray = field(default_factory=bytearray)
    pending: list[Operation] = field(default_factory=list)
    was_synced: bool = False


class Disk:
    """What a disk holds, operation by operation."""

    def __init__(self) -> None:
        self._names: dict[str, _File] = {}
        self._sure_names: dict[str, _File] = {}
        self._pending_names: list[tuple[str, _File | None]] = []

    def make(self, name: str) -> None:
        """Make an empty file, and sync its name."""
        self._names[name] = self._sure_names[name] = _File(was_synced=True)

    def apply(self, operation: Operation) -> None:
        """Take the next operation."""
        name = operation.file
        match operation.kind:
            case "create":
                self._names[name] = _File()
                self._pending_names.append((name, self._names[name]))
            case "write" | "truncate":
                self._names[name].pending.append(operation)
            case "sync":
                file = self._names[name]
                for change in file.pending:
                    _change(file.sure, change)
                file.pending.clear()
                if not file.was_synced:  # SQLite then syncs the folder of a new file, too
                    self._sync_names()
                file.was_synced = True
            case "delete":
                del self._names[name]
                self._pending_names.append((name, None))
                if operation.place:
                    self._sync_names()

    def _sync_names(self) -> None:
        self._sure_names = dict(self._names)
        self._pending_names.clear()

    def cut_power(self, chance: random.Random) -> dict[str, bytes]:
        """Give what the files may hold if the power is cut now.

        File systems keep changes of names in order; writes to a file they do not.
        """
        names = dict(self._sure_names)
        for name, file in self._pending_names[: chance.randint(0, len(self._pending_names))]:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
        return {name: _torn(file, chance) for name, file in names.items()}


def _torn(file: _File, chance: random.Random) -> bytes:
    """Give a file with some of its pending changes, one of them in part."""
    content, pending = bytearray(file.sure), list(file.pending)
    if chance.random() < 0.5:  # in order up to some point
        pending = pending[: chance.randint(0, len(pending))]
    else:
        share = chance.random()
        pending = [change for change in pending if chance.random() < share]
    torn = chance.randrange(len(pending)) if pending and chance.random() < 0.5 else -1
    for number, change in enumerate(pending):
        if number == torn and change.kind == "write":
            cut = change.data[: chance.randrange(len(change.data))]
            change = Operation("write", change.file, change.place, cut)
        _change(content, change)
    return bytes(content)


def _change(content: bytearray, change: Operation) -> None:
    if change.kind == "truncate":
        del content[change.place :]
        content.extend(bytes(change.place - len(content)))
        return
    content.extend(bytes(max(0, change.place - len(content))))
    content[change.place : change.place + len(change.data)] = change.data

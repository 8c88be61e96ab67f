"""Import of a user's code, with its failures as one line."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Callable
from hashlib import sha256
from importlib import import_module, invalidate_caches
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import walk_tb
from types import ModuleType
from typing import TypeVar

from launch.errors import UseCaseError

T = TypeVar("T")

_STANDARD = tuple(
    Path(path).resolve() for key in ("stdlib", "platstdlib") if (path := sysconfig.get_path(key))
)
_INSTALLED = {"site-packages", "dist-packages"}


def prepend_to_path(folder: Path) -> None:
    """Put a folder first on the import path, as Python does for the script that it runs."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    invalidate_caches()


def import_by_name(name: str) -> ModuleType:
    """Import a module.

    Raises:
        UseCaseError: The module, or one that it imports, fails.
    """
    return run_user_code(name, lambda: import_module(name))


def import_file(file: Path) -> ModuleType:
    """Import a Python file.

    It gets its own name where that is free, so that what it defines can be pickled for
    processes that import by name; a name that something else has taken is made unique.

    Raises:
        UseCaseError: The file, or what it imports, fails.
    """
    prepend_to_path(file.parent)
    found = find_spec(file.stem) if file.stem.isidentifier() else None
    if found is not None and found.origin == str(file):
        return import_by_name(file.stem)
    name = f"use_case_{sha256(str(file).encode()).hexdigest()[:16]}"
    if name not in sys.modules:
        run_user_code(file, lambda: _execute(name, file))
    return sys.modules[name]


def run_user_code(origin: Path | str, run: Callable[[], T]) -> T:
    """Run a user's code; turn whatever it raises into one line.

    Raises:
        UseCaseError: The code raised; its exception is the cause.
    """
    try:
        return run()
    except UseCaseError:  # it says in one line what is wrong
        raise
    except (Exception, SystemExit) as error:
        raise make_import_error(origin, error) from error


def make_import_error(origin: Path | str, error: BaseException) -> UseCaseError:
    """Make the error of what a user's code raised, with the user's line.

    The innermost line outside of installed packages and of ddlplan is the user's.
    """
    if isinstance(error, SyntaxError):
        where = f"{error.filename or origin}, line {error.lineno}"
        return UseCaseError(f"use case {origin} cannot be read: {error.msg} ({where}): fix it")
    line = find_users_line(error, origin)
    where = f" ({line})" if line else ""
    said = " ".join(str(error).split())
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return UseCaseError(f"use case {origin} fails: {what}{where}: fix it")


def find_users_line(error: BaseException, origin: Path | str) -> str | None:
    """Find file and line of a user's code in which an exception was raised, the innermost."""
    lines = [
        f"{frame.f_code.co_filename}, line {line}"
        for frame, line in walk_tb(error.__traceback__)
        if _is_users(frame.f_code.co_filename, origin)
    ]
    return lines[-1] if lines else None


def _is_users(filename: str, origin: Path | str) -> bool:
    if filename == str(origin):
        return True
    if is_generated(filename):
        return False
    file, root = Path(filename).resolve(), Path(__file__).resolve().parents[2]
    is_ours = any(file.is_relative_to(root / floor) for floor in ("launch", "probes"))
    return not (is_ours or is_installed(file))


def is_generated(filename: str) -> bool:
    """Tell whether code was made at run time: it has no file, or one in torch's own cache."""
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    return filename.startswith("<") or bool(cache and Path(filename).is_relative_to(cache))


def is_installed(file: Path) -> bool:
    """Tell whether a file belongs to Python or to an installed package."""
    return not _INSTALLED.isdisjoint(file.parts) or any(map(file.is_relative_to, _STANDARD))


def _execute(name: str, file: Path) -> None:
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise

"""The command ``ddlplan serve``."""

from __future__ import annotations

import contextlib
import html
import os
import threading
import webbrowser
from importlib.util import find_spec

from launch.mpi.mpirun import needs_root_option
from launch.packages.install_command import install_command
from launch.system.temporary_folder import TemporaryFolder
from planner.errors import UsageError
from planner.report.output import Output
from planner.service.requests.settings import ServiceSettings
from planner.store import check_location, find_hazard, find_missing_file

_LIBRARIES = ("starlette", "uvicorn", "jinja2")


def serve(settings: ServiceSettings, out: Output, *, opens: bool) -> None:
    """Serve until Ctrl-C, and say where.

    Raises:
        UsageError: What serves is not installed, or an option is wrong.
        RefusedError: Others may read the token file.
        StoreError: The database cannot be used.
    """
    if missing := [name for name in _LIBRARIES if find_spec(name) is None]:
        raise UsageError(f"no {', '.join(missing)} installed: {install_command('ddlplan[serve]')}")
    from planner.service.guard.addresses import is_loopback
    from planner.service.server import serve as serve_settings

    check_location(settings.db)
    if hazard := find_hazard(settings.db):
        out.warn(hazard)
    if missing_file := find_missing_file(settings.db):
        out.note(
            f"there is no database {missing_file} yet: pages are empty until something is stored "
            "in it; --db names another"
        )
    if settings.allow_actions and not settings.allow_run_as_root and needs_root_option(os.environ):
        out.warn(
            "as root every training will be refused: serve as another user, or with "
            "--allow-run-as-root"
        )
    if not is_loopback(settings.host):
        out.warn(
            "without TLS in front, anybody on the way reads along: put a proxy with TLS before it, "
            "or use ssh -L; see docs/service.md"
        )
    with contextlib.ExitStack() as ended:
        is_first = True

        def tell(address: str) -> None:
            nonlocal is_first
            if is_first:
                out.write_line(address)
                _explain(settings, out)
                if opens:
                    _open(address, ended)
            else:
                out.note("that address is used up; another browser opens this one:")
                out.write_line(address)
            is_first = False

        serve_settings(settings, on_address=tell)
    out.note("stopped")


def _explain(settings: ServiceSettings, out: Output) -> None:
    if settings.token_file is not None:
        out.note(f"sign in with the token in the file {settings.token_file.absolute()}")
    else:
        out.note("open this address once: it signs a browser in")
    if not settings.allow_actions:
        out.note("it only shows: --allow-actions lets it start and end jobs")
    out.note("Ctrl-C ends it")


def _open(address: str, ended: contextlib.ExitStack) -> None:
    """Open a browser by a file that leads on, as its arguments are seen by all users."""
    folder = ended.enter_context(TemporaryFolder())  # nobody else may read it
    page = folder / "open.html"
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={html.escape(address)}">',
        encoding="utf-8",
    )
    # In a thread, because one in the terminal lasts until it is left.
    threading.Thread(target=webbrowser.open, args=[page.as_uri()], daemon=True).start()

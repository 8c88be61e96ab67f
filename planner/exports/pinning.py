"""Pinning of an exported plan's processes, as Python text that needs no ddlplan."""

from __future__ import annotations

from pathlib import Path

from planner.exports import own_cores

PIN_VARIABLE = "PIN"
"""Of a shell script, with what `pinned_start` gives."""


def pinning_text() -> str:
    """Give ``pin(rank, processes, threads)`` with what it needs."""
    return Path(own_cores.__file__).read_text().partition('"""\n\n')[2]


def pinned_start(processes: int, threads: int, *, is_script: bool = False) -> str:
    """Give a program that pins its process, which then becomes what its arguments say.

    They are a command, or a Python script with its arguments for the Python that runs this.
    """
    rank = "0" if processes == 1 else 'int(os.environ.get("LOCAL_RANK", 0))'
    command = '[sys.executable, "-u", *sys.argv[1:]]' if is_script else "sys.argv[1:]"
    return (
        # The user's folder may hold a re.py.
        f"import sys\nsys.path[:] = filter(None, sys.path)\n{pinning_text()}\n\n"
        f"pin({rank}, {processes}, {threads})\n"
        f"command = {command}\n"
        "os.execvp(command[0], command)"
    )

"""Pinning of an exported plan's processes, as Python text that needs no ddlplan."""

from __future__ import annotations

from pathlib import Path

from planner.exports import own_cores

PIN_VARIABLE = "PIN"
"""Of a shell script, with what `pinned_start` gives."""


def pinning_text() -> str:
    """Give ``pin(rank, processes, threads)`` with what it needs."""
    return Path(own_cores.__file__).read_text().partition('"""\n\n')[2]


def pinned_start(processes: int, threads: int) -> str:
    """Give a program that pins its process, which then becomes the command of its arguments."""
    rank = "0" if processes == 1 else 'int(os.environ.get("LOCAL_RANK", 0))'
    return (
        f"import sys\n{pinning_text()}\n\n"
        f"pin({rank}, {processes}, {threads})\n"
        "os.execvp(sys.argv[1], sys.argv[1:])"
    )

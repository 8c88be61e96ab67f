"""Formats in which a plan is exported."""

from __future__ import annotations

from collections.abc import Callable

from planner.errors import UsageError
from planner.exports.batch_script import batch_script
from planner.exports.python_module import python_module
from planner.exports.shell_script import shell_script
from planner.plans.plain_commands import plain_commands
from planner.plans.stored_plan import StoredPlan

JSON = "json"
"""What ``plans import`` reads."""

_TEXTS: dict[str, Callable[[StoredPlan], str]] = {
    "mpirun": lambda stored: plain_commands(stored.plan)["mpirun"] + "\n",
    "torchrun": lambda stored: plain_commands(stored.plan)["torchrun"] + "\n",
    "sbatch": batch_script,
    "shell": shell_script,
    "python": python_module,
}
_ALIASES = {"slurm": "sbatch"}

TEXT_FORMATS = tuple(_TEXTS)
"""Those that run by themselves."""


def find_format(name: str) -> str:
    """Give the format that a name means.

    Raises:
        UsageError: It means none.
    """
    found = _ALIASES.get(name, name)
    if found != JSON and found not in _TEXTS:
        raise UsageError(f"--format {name!r}: choose one of {', '.join((JSON, *_TEXTS))}")
    return found


def export_text(stored: StoredPlan, text_format: str) -> str:
    """Give a plan in one of `TEXT_FORMATS`, with a line break at its end."""
    return _TEXTS[text_format](stored)

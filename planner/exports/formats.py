"""Formats in which a plan is exported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from launch.scripts.environment import patches_of
from planner.errors import UsageError
from planner.exports.batch_script import batch_script
from planner.exports.own_scripts import SCRIPT_TEXTS
from planner.exports.python_module import python_module
from planner.exports.shell_script import shell_script
from planner.plans.plain_commands import plain_commands
from planner.plans.stored_plan import StoredPlan
from planner.report.plans import GENERATED
from planner.scripts.naming import is_script

JSON = "json"
"""What ``plans import`` reads."""

_TEXTS: dict[str, Callable[[StoredPlan, Sequence[str]], str]] = {
    "mpirun": lambda stored, _: plain_commands(stored.plan)["mpirun"] + "\n",
    "torchrun": lambda stored, _: plain_commands(stored.plan)["torchrun"] + "\n",
    "sbatch": batch_script,
    "shell": shell_script,
    "python": python_module,
}
_ALIASES = {"slurm": "sbatch"}

FILE_NAMES = {
    "sbatch": "plan.sbatch",
    "shell": "plan.sh",
    "python": "plan_settings.py",
    JSON: "plan.json",
}
"""Names of files, of the formats that are more than a line."""

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


def export_document(
    stored: StoredPlan, export_format: str, stale_reasons: Sequence[str]
) -> dict[str, Any]:
    """Give an export as commands and the service answer it in JSON."""
    if export_format == JSON:
        return stored.to_json(stale=bool(stale_reasons)) | {"commands": _commands(stored)}
    text = export_text(stored, export_format, stale_reasons)
    return {"id": stored.id, "format": export_format, "text": text}


def _commands(stored: StoredPlan) -> dict[str, str]:
    """Give a plan as command lines; none where it changes a script itself."""
    if not is_script(stored.use_case):
        return plain_commands(stored.plan)
    if patches_of(stored.plan):
        return {}
    return {"script": export_text(stored, "torchrun").rstrip("\n")}


def export_text(stored: StoredPlan, text_format: str, stale_reasons: Sequence[str] = ()) -> str:
    """Give a plan in one of `TEXT_FORMATS`, with a line break at its end.

    Scripts say in a comment why a plan is stale; command lines cannot.
    """
    texts = SCRIPT_TEXTS if is_script(stored.use_case) else _TEXTS
    return texts[text_format](stored, stale_reasons)


def unsaid(stored: StoredPlan, text_format: str) -> list[str]:
    """Give warnings to go with an export: scripts say it in a comment, a command line cannot."""
    is_mute = stored.is_generated and text_format not in FILE_NAMES
    return [f"the data of plan {stored.id} were {GENERATED}"] if is_mute else []

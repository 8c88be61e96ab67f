"""Names of scripts: how a command of the user's own is spelled where a use case has its name."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from launch.errors import ScriptError
from launch.plan import Plan
from launch.scripts.environment import NO_PYTHON, PATCHES, patches_of
from launch.scripts.program import PROCESSES, THREADS, WORKERS, Program, ProgramKind
from launch.system.durable_files import explain_absence

PREFIX = "script:"
_PLAIN = re.compile(r"(?:[\w@%+=:,./-]|\{\w+\})+", re.ASCII)
"""Words that no shell changes: braces around a name stay as they are in sh, bash, zsh and fish."""

WHOLE_RUNS, STEP_REGEX = "whole_runs", "step_regex"
"""Options of plans whose steps are whole runs, or lines of the output that match."""

STRATEGY = "script"
"""Strategy of the plans of scripts. No file builds it: the script itself makes the steps."""


def script_name(arguments: Sequence[str]) -> str:
    """Give the name under which a command is stored, as it was typed."""
    return PREFIX + shlex.join(arguments)


def is_script(use_case: str) -> bool:
    """Tell whether a name is that of a script."""
    return use_case.startswith(PREFIX)


def hides_workers(use_case: str) -> bool:
    """Tell whether a name is that of a script whose loader workers are its own: not known."""
    return is_script(use_case) and WORKERS not in _placeholders(use_case)


def tune_options(use_case: str) -> list[str]:
    """Give the choices that ``ddlplan tune`` wants of the user, as options to fill in."""
    known = (WORKERS, THREADS, PROCESSES)
    unknown = [name for name in _placeholders(use_case) if name not in known]
    return [word for name in unknown for word in ("--choices", f"{name}=A,B")]


def measuring_options(plan: Plan) -> list[str]:
    """Give the options by which ``ddlplan tune`` measured a script as the plan says."""
    options = ["--no-python"] if {WHOLE_RUNS, NO_PYTHON} & plan.options.keys() else []
    if (regex := plan.options.get(STEP_REGEX)) is not None:
        options += ["--step-regex", str(regex)]
    changed = patches_of(plan).keys()
    parts = [part for part, names in PATCHES.items() if names.keys() & changed]
    return options + (["--patch", ",".join(parts)] if parts else [])


def shell_line(variables: Mapping[str, str], command: Sequence[str] = ()) -> str:
    """Give a command for a shell, with the variables that are set for it alone."""
    assigned = (f"{name}={shlex.quote(value)}" for name, value in variables.items())
    return " ".join([*assigned, *map(shlex.quote, command)])


def command_line(words: Sequence[str]) -> str:
    """Give words as they are typed: with quotes where a shell needs them, but for placeholders."""
    return " ".join(word if _PLAIN.fullmatch(word) else shlex.quote(word) for word in words)


def describe_trained(use_case: str) -> str:
    """Give a use case's name, or a script's command line."""
    return command_line(script_arguments(use_case)) if is_script(use_case) else use_case


def command_for(use_case: str, command: str, *options: str) -> str:
    """Give the line ``ddlplan tune ...``, or of another command, for a use case or a script."""
    words = ["ddlplan", command]
    if is_script(use_case):
        choices = tune_options(use_case) if command == "tune" else []
        return command_line([*words, *choices, *options, "--", *script_arguments(use_case)])
    return command_line([*words, "--use-case", use_case, *options])


def script_arguments(use_case: str) -> list[str]:
    """Give the words of the command that a name was made of; one where a quote is left open.

    Databases may have plans of such names, which are listed and removed as others are.
    """
    command = use_case.removeprefix(PREFIX)
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _placeholders(use_case: str) -> tuple[str, ...]:
    """Give the placeholders of a script; none where a brace is alone."""
    with suppress(ScriptError):
        return Program(arguments=tuple(script_arguments(use_case))).placeholders
    return ()


def digest(
    program: Program,
    folder: Path,
    *,
    step_regex: str | None = None,
    patches: Sequence[str] = (),
) -> str:
    """Give a text that changes with the command, its choices, files, patches, and what a step is.

    So a search goes on in the study of an earlier one only where it may choose the same plans, and
    measures the same. It ends with what `code_digest` gives.
    """
    is_python = program.kind is not ProgramKind.OTHER
    choices = sorted(program.choices.items())
    settings = [program.arguments, choices, is_python, step_regex, sorted(patches)]
    asked = hashlib.sha256(json.dumps(settings).encode()).hexdigest()
    return f"sha256:{asked}+{code_digest(program.arguments, folder)}"


def code_digest(arguments: Sequence[str], folder: Path) -> str:
    """Give a text that changes with the files of a command.

    Two folders may have the same command, and other files. Files of Python alone count: data are
    large, and a log that the script writes is not the script.
    """
    found = hashlib.sha256()
    for file in code_files(arguments, folder):
        with suppress(OSError):  # Python itself tells why it cannot read it
            found.update(hashlib.sha256((folder / file).read_bytes()).digest())
    return found.hexdigest()


def code_of(use_case_digest: str | None) -> str | None:
    """Give what `code_digest` gave where a script was tuned; ``None`` where that is not known."""
    return None if use_case_digest is None else use_case_digest.partition("+")[2] or None


def code_files(arguments: Sequence[str], folder: Path) -> list[str]:
    """Give the Python files among the words of a command: what trains, and all ending in .py."""
    trains = Program(arguments=tuple(arguments)).target if arguments else None
    named = [
        word
        for number, word in enumerate(arguments)
        # The first word starts what trains, or is no Python.
        if word.endswith(".py") or (number and word == trains)
    ]
    # Where nothing can be found, as in a folder of another user, is_file may raise.
    return [one for one in named if not explain_absence(folder / one) and (folder / one).is_file()]

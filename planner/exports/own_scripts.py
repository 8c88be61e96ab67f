"""Plans of scripts as files that run the script without ddlplan: its command, and variables."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from launch.scripts.environment import (
    OWN_SETTINGS,
    patches_of,
    placeholder_values,
    plain_script_environment,
)
from launch.scripts.program import Program
from planner.errors import UsageError
from planner.exports.batch_script import sbatch_options
from planner.exports.head import head_lines
from planner.exports.pinning import PIN_VARIABLE, pinning_text
from planner.exports.shell_script import exports, pin_lines
from planner.plans.stored_plan import StoredPlan
from planner.scripts.naming import script_arguments, shell_line

_STARTER = re.compile(r"python[\d.]*t?|torchrun|accelerate")
"""Words of a command that name what starts the script, without a folder."""


def _program(stored: StoredPlan) -> Program:
    return Program(arguments=tuple(script_arguments(stored.use_case)))


def _command(stored: StoredPlan) -> tuple[str, ...]:
    if changes := patches_of(stored.plan):
        named = ", ".join(f"{name}={value}" for name, value in changes.items())
        raise UsageError(
            f"plan {stored.id} changes the script itself ({named}), which only ddlplan launch does "
            "without an edit: write that into the script, or export --format json"
        )
    program = _program(stored)
    return program.fill(placeholder_values(program, stored.plan))


def _comments(stored: StoredPlan, stale_reasons: Sequence[str]) -> list[str]:
    lines = head_lines(stored, stale_reasons)
    starting = _program(stored).starting_words(_command(stored))
    if found := [word for word in starting if _STARTER.fullmatch(word)]:
        lines.append(f"{found[0]} is that of PATH: activate the environment that it was tuned in.")
    return [f"# {line}" for line in lines]


def _is_as_it_is(stored: StoredPlan) -> bool:
    return bool(stored.plan.options.get(OWN_SETTINGS))


def _variables(stored: StoredPlan) -> Mapping[str, str]:
    return {} if _is_as_it_is(stored) else plain_script_environment(stored.plan)


def _line(stored: StoredPlan, _: Sequence[str]) -> str:
    """Give the command as one line; what starts its processes is in it already."""
    return shell_line(_variables(stored), _command(stored)) + "\n"


def _run_lines(stored: StoredPlan) -> list[str]:
    command = shlex.join(_command(stored))
    if _is_as_it_is(stored):
        return ["set -eu", f'exec {command} "$@"']
    return [
        "set -eu",
        *exports(_variables(stored)),
        *pin_lines(1, stored.plan.threads),  # all its processes share them
        f"command -v python3 >/dev/null || {PIN_VARIABLE}=",
        f'exec ${{{PIN_VARIABLE}:+python3 -I -c "${PIN_VARIABLE}"}} {command} "$@"',
    ]


def _shell(stored: StoredPlan, stale_reasons: Sequence[str]) -> str:
    lines = [
        "#!/bin/sh",
        *_comments(stored, stale_reasons),
        "# It runs without ddlplan; words behind it are passed on:  sh plan.sh MORE_ARGUMENTS",
        *_run_lines(stored),
    ]
    return "\n".join(lines) + "\n"


def _batch(stored: StoredPlan, stale_reasons: Sequence[str]) -> str:
    lines = [
        "#!/bin/bash",
        *_comments(stored, stale_reasons),
        "# Submit it from the script's folder:",
        "#   sbatch plan.sbatch MORE_ARGUMENTS",
        "# --gres=gpu:N before plan.sbatch where the script uses GPUs.",
        *sbatch_options(stored, tasks=1, cores_per_task=stored.plan.threads),
        *_run_lines(stored),
    ]
    return "\n".join(lines) + "\n"


def _python(stored: StoredPlan, stale_reasons: Sequence[str]) -> str:
    lines = [
        *_comments(stored, stale_reasons),
        "# python plan_settings.py MORE_ARGUMENTS  runs the script, without ddlplan.",
        "import sys",
        pinning_text(),
        "",
        "ENVIRONMENT = {",
        *(f"    {name!a}: {value!a}," for name, value in _variables(stored).items()),
        "}",
        "COMMAND = [",
        *(f"    {word!a}," for word in _command(stored)),
        "]",
        "",
        'if __name__ == "__main__":',
        '    preloaded = (ENVIRONMENT.get("LD_PRELOAD"), os.environ.get("LD_PRELOAD"))',
        "    if any(preloaded):",
        '        ENVIRONMENT["LD_PRELOAD"] = ":".join(filter(None, preloaded))',
        *([] if _is_as_it_is(stored) else [f"    pin(0, 1, {stored.plan.threads})"]),
        "    os.execvpe(COMMAND[0], [*COMMAND, *sys.argv[1:]], {**os.environ, **ENVIRONMENT})",
    ]
    return "\n".join(lines) + "\n"


SCRIPT_TEXTS: Mapping[str, Callable[[StoredPlan, Sequence[str]], str]] = {
    "mpirun": _line,
    "torchrun": _line,
    "sbatch": _batch,
    "shell": _shell,
    "python": _python,
}
"""By format: as of plans of use cases."""

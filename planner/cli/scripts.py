"""Command of the user's own behind ``--``, and the options that belong to it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.grouped_help import GroupedCommand, source_of
from planner.cli.jobs import given_options
from planner.cli.options import option
from planner.cli.values import names_of, one_of
from planner.errors import UsageError
from planner.report.output import environment_variable

if TYPE_CHECKING:
    from launch.plan import Setting
    from launch.scripts.program import Program
    from planner.report.output import Output

_TYPED = "ddlplan.typed"
_OF_SCRIPTS = ("seed", "batch_size")
"""Options of ours that most scripts have as well."""

_NO_JSON = ("nan", "inf", "-inf")
"""Numbers that no database holds: they stay texts."""

_script_option = partial(option, group="A script as it is")

Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- COMMAND",
        help="A script as it is, in place of --use-case: -- python train.py --batch-size {batch}",
        show_default=False,
        rich_help_panel="What to train",
    ),
]
Choices = Annotated[
    list[str] | None,
    _script_option(
        "--choices",
        help_="Values of a {placeholder}, yours first: batch=32,64,128; may be repeated.",
        metavar="NAME=A,B",
    ),
]
StepRegex = Annotated[
    str | None,
    _script_option(
        "--step-regex", help_="Count lines of its output that match as steps.", metavar="REGEX"
    ),
]
NoPython = Annotated[bool, _script_option("--no-python", help_="Time whole runs of any program.")]
Patch = Annotated[
    list[str] | None,
    _script_option(
        "--patch",
        help_="Also vary settings of its data loader, model, or both: loader,model.",
        metavar="PART",
    ),
]
InPlace = Annotated[
    bool,
    _script_option(
        "--in-place", help_="Run trials in this folder itself, not in a private view of it."
    ),
]


class ScriptCommand(GroupedCommand):
    """A command that takes one of the user's own, with or without ``--`` before it."""

    allow_interspersed_args = False
    """Words behind the first of that one are its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words, and keep them: a parser leaves no trace of a ``--``."""
        ctx.meta[_TYPED] = tuple(args)
        return super().parse_args(ctx, args)


def make_program(
    command: Sequence[str],
    choices: Sequence[str] | None,
    *,
    batch_size: int | None,
    is_python: bool,
) -> Program:
    """Read the command and the choices of its placeholders.

    Raises:
        UsageError: Choices are not written as such, or given twice.
        ScriptError: The command cannot be measured as it is written.
    """
    from launch.scripts.program import Program
    from probes.node import probe

    found: dict[str, tuple[Setting, ...]] = {}
    for text in choices or ():
        name, sign, values = text.partition("=")
        if not (name and sign and values):
            raise UsageError(f"--choices {text!r}: write NAME=A,B, such as batch=32,64,128")
        if name in found:
            raise UsageError(f"--choices {name}: given twice: name all values at once")
        found[name] = tuple(_value(value) for value in values.split(","))
    if batch_size is not None:
        if "batch" in found:
            raise UsageError("--batch-size and --choices batch exclude each other: give one")
        found["batch"] = (batch_size,)
    cores = probe(quick=True).cpu.usable_cores
    return Program.parse(command, cores=cores, choices=found, is_python=is_python)


def find_parts(parts: Sequence[str] | None, *, is_python: bool) -> tuple[str, ...]:
    """Read which parts of a script may be changed.

    Raises:
        UsageError: One is not known, or the program is not Python.
    """
    from launch.scripts.environment import PATCHES

    if not parts:
        return ()
    if not is_python:
        raise UsageError("--patch and --no-python: only a Python program can be changed: give one")
    names = names_of("--patch", ",".join(parts))
    return tuple(one_of("--patch", name, tuple(PATCHES)) for name in names)


def check_options(context: typer.Context, allowed: Sequence[str], out: Output) -> None:
    """Refuse options that mean nothing for a script, and warn of one that stands behind it.

    Without a ``--`` the command may be a slip: a use case without its option, or half a value.

    Raises:
        UsageError: One was given, or the command is the name of a use case.
    """
    command = context.params["command"]
    is_after_dashes = context.meta[_TYPED][: -len(command)][-1:] == ("--",)
    if not is_after_dashes:
        _refuse_use_case(command)
    for name, value in given_options(context).items():
        if name in allowed or value is None or value is False:
            continue
        given = as_given(context, name)
        if is_after_dashes:
            raise UsageError(
                f"{given} and a command after --: it is for use cases alone: leave it out"
            )
        raise UsageError(
            f"{given} and {command[0]!r}, where a command of your own would begin: {given} is for "
            "use cases alone: leave one of them out"
        )
    if is_after_dashes:
        return
    ours = {
        text
        for known in context.command.params
        if known.name in allowed and known.name not in (*_OF_SCRIPTS, "command")
        for text in known.opts
    }
    if behind := [word for word in command if word.partition("=")[0] in ours]:
        out.warn(
            f"{behind[0]} behind {command[0]!r} is the command's own: write options of ddlplan "
            "before the command, and -- between"
        )


def needed_case(use_case: str | None, command: str) -> str:
    """Give the use case where there is no script.

    Raises:
        UsageError: There is neither.
    """
    if use_case is None:
        raise UsageError(
            f"Missing option '--use-case', or a command after --: see ddlplan {command} --help"
        )
    return use_case


def refuse_without_command(context: typer.Context, names: Sequence[str]) -> None:
    """Refuse options of scripts where there is none.

    Raises:
        UsageError: One was given.
    """
    for name in names:
        if context.params.get(name):
            raise UsageError(
                f"--{name.replace('_', '-')} and no command: write the script after --, such as "
                "-- python train.py"
            )


def as_given(context: typer.Context, name: str) -> str:
    """Give an option as the user wrote it: where it was read from its variable, that one."""
    option_name = "--" + name.replace("_", "-")
    is_variable = source_of(context, name) == "ENVIRONMENT"
    return environment_variable(option_name) if is_variable else option_name


def _refuse_use_case(command: Sequence[str]) -> None:
    """Refuse the name of a built-in use case where a command begins, unless a program has it."""
    from launch.use_cases import use_case_names

    name = command[0]
    if name.partition(",")[0] in use_case_names() and shutil.which(name) is None:
        raise UsageError(f"program {name!r} is not there: a use case needs --use-case {name}")


def _value(text: str) -> Setting:
    """Read a value as the number that it is, where writing it again gives the same text."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text and text not in _NO_JSON:
            return value
    return text

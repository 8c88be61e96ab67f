"""Help of a command: its options under the headings of their groups, as plain text."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

DEFAULT_GROUP = "Output"


class GroupedCommand(TyperCommand):
    """A command whose options name their group, as ``rich_help_panel``.

    typer draws these groups as boxes, which needs rich: that takes as long to load as all else that
    ``--help`` does, and boxes are in the way in a pipe.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and each group, in the order of the first option of each."""
        _write_groups(self, ctx, formatter)


class GroupedGroup(TyperGroup):
    """A command with commands below it, whose own options are shown in groups as well."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the groups of its options, and its commands."""
        _write_groups(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def command_group(help_: str) -> typer.Typer:
    """Make a command with others below it, which shows its help where none of them is named."""
    group = typer.Typer(help=help_, invoke_without_command=True, rich_markup_mode=None)
    group.callback()(show_help)
    return group


def show_help(context: typer.Context) -> None:
    """Show the help of a command where none below it is named, and end."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


def names_subcommand(context: typer.Context) -> bool:
    """Tell whether a command below this one is named.

    Raises:
        BadParameter: Options stand before its name, and would be dropped.
    """
    if context.invoked_subcommand is None:
        return False
    for parameter in context.command.params:
        if source_of(context, parameter.name or "") == "COMMANDLINE":
            name = context.invoked_subcommand
            raise typer.BadParameter(f"{parameter.opts[0]} before {name}: put it after {name}")
    return True


def source_of(context: typer.Context, name: str) -> str:
    """Give where typer says that the value of an option is from: "DEFAULT" if it was left out."""
    source: Any = context.get_parameter_source(name)
    return "DEFAULT" if source is None else str(source.name)


def _write_groups(command: TyperCommand | TyperGroup, ctx: Any, formatter: Any) -> None:
    groups: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        default = "Arguments" if parameter.param_type_name == "argument" else DEFAULT_GROUP
        title = getattr(parameter, "rich_help_panel", None) or default
        if (record := parameter.get_help_record(ctx)) is not None:
            name, text = record
            if parameter.param_type_name == "argument":
                name = name.partition(" <")[0]  # its type in Python says nothing to who types it
            groups.setdefault(title, []).append((name, text))
    for title, records in groups.items():
        with formatter.section(title):
            formatter.write_dl(records)

"""Tables as aligned text, coloured on a terminal, and as CSV.

`rich.table` does not serve: it can neither drop columns nor write a remark below its row, and it
needs 2.4 s for 1,000 rows of 10 columns, 20 times as long.
"""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TextIO

from rich.cells import cell_len, set_cell_size

from planner.quantities import printable

_GAP = "  "
_GO_ON = " \\"
_SHELL_WORD = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|\S)+""")
_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters but ends of lines, and bytes of file names that are no text."""

_INDENT = 4
_MIN_WIDTH = 10
_MOST_PADDING = 1000
"""Width to which the cells of a column are padded in a pipe: a name in another's database may have
megabytes, by which every row would be as long."""

_LOOKED_AT = 8
"""Characters for each place of a cut cell that are looked at: accents and joiners take none."""

Row = Mapping[str, str]

_Line = Sequence[tuple[str, str]]
"""Pieces of a line, each with its style for rich, which is loaded for colours alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table."""

    key: str
    title: str

    right: bool = False
    """Whether its cells are aligned on the right, as numbers should be."""

    may_drop: bool = False
    """Whether it is left out on a terminal that is too narrow, the last such column first."""

    may_cut: bool = False
    """Whether its cells are cut where that is not enough, the widest such column first."""

    cuts_start: bool = False
    """Whether a cut cell keeps its end, which tells paths apart."""

    moves_below: bool = False
    """Whether a terminal that is too narrow shows its cells below their rows, as remarks."""

    is_remark: bool = False
    """Whether a terminal shows its cells on separate lines below their rows."""

    style: Callable[[str], str] | None = None
    """Gives a cell's style for rich."""


@dataclass(frozen=True, slots=True)
class WithCommand:
    """A value that ends with a command: on several lines a shell still reads it as one."""

    before: str
    command: str


@dataclass(frozen=True, slots=True)
class Terminal:
    """Where a table is printed: its width, and whether it has colours."""

    width: int | None = None
    """Characters of a line; ``None`` for a pipe or a file, where nothing is cut."""

    color: bool = False


def detect_terminal(stream: TextIO, environment: Mapping[str, str]) -> Terminal:
    """Detect whether a stream is a terminal, and its width. ``NO_COLOR`` is respected (https://no-color.org)."""
    if not stream.isatty():
        return Terminal()
    from rich.console import Console  # not for a pipe, which has neither width nor colours

    is_plain = bool(environment.get("NO_COLOR")) or environment.get("TERM") == "dumb"
    return Terminal(width=Console(file=stream).width, color=not is_plain)


def render_table(rows: Sequence[Row], columns: Sequence[Column], terminal: Terminal) -> str:
    """Give a table as text with line ends. Columns without any cell are left out.

    A pipe gets one line per row and nothing is cut. On a terminal lines fit its width: columns are
    dropped and cut, and remarks move below their rows, as each `Column` allows. Titles go on
    several lines before any cell is cut, and what was dropped is named below the table.
    """
    rows = [{key: printable(cell) for key, cell in row.items()} for row in rows]
    used = [column for column in columns if any(row.get(column.key) for row in rows)]
    remarks, dropped = list[Column](), list[str]()
    if (most := terminal.width) is None:
        used = [replace(column, may_cut=False) for column in used]
        widths = [min(width, _MOST_PADDING) for width in _widths(used, rows)]
    else:
        is_wide = not _fits([c for c in used if not c.is_remark], rows, most)
        remarks = [c for c in used if c.is_remark or (is_wide and c.moves_below)]
        beside = [column for column in used if column not in remarks]
        used = _dropped(beside, rows, most)
        dropped = [column.title for column in beside if column not in used]
        breaks_titles = not _fits(used, rows, most)
        widths = _cut(used, _widths(used, rows, breaks_titles=breaks_titles), most)
    lines = _heading(used, widths)
    for row in rows:
        lines.append(_line(row, used, widths))
        lines += [line for column in remarks for line in _remark(row.get(column.key), most)]
    if dropped:
        left_out = f"left out for want of room: {', '.join(dropped)} (--json has all)"
        lines += [[(line, "dim")] for line in _wrapped(left_out, most)]
    return _text(lines, terminal)


def render_facts(
    facts: Sequence[tuple[str, str | WithCommand]],
    terminal: Terminal,
    *,
    name_width: int | None = None,
) -> str:
    """Give names and their values as text, a line each; long values are wrapped and indented.

    Names take as much room as the longest needs, where no width is given.
    """
    name_width = name_width or max((len(name) for name, _ in facts), default=0) + len(_GAP)
    lines: list[_Line] = []
    for name, value in facts:
        room = None if terminal.width is None else max(terminal.width - name_width, 20)
        first, *rest = _value_lines(value, room) or [""]
        lines.append([(f"{name:{name_width}}", "bold"), (first, "")])
        lines += [[(" " * name_width + more, "")] for more in rest]
    return _text(lines, terminal)


def render_line(value: str | WithCommand, terminal: Terminal) -> str:
    """Give a line as text; on a terminal a long one goes on below itself, indented."""
    if isinstance(value, WithCommand):
        room = None if terminal.width is None else terminal.width - len(_GAP)
        first, *rest = _value_lines(value, room)
        return "".join([f"{first}\n", *(f"{_GAP}{line}\n" for line in rest)])
    text = printable(value)
    if terminal.width is None or cell_len(text) <= terminal.width:
        return f"{text}\n"
    below = " " * (len(text) - len(text.lstrip())) + _GAP
    return "".join(f"{line}\n" for line in _wrapped(text, terminal.width, below=below))


def render_csv(rows: Sequence[Mapping[str, object]], fields: Sequence[str]) -> str:
    """Give rows as CSV (RFC 4180) with a header: plain numbers, empty where unknown.

    Of control characters, which a terminal would obey, only ends of lines stay as they are.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(fields)
    writer.writerows([_csv_cell(row.get(field)) for field in fields] for row in rows)
    return out.getvalue()


def _csv_cell(value: object) -> object:
    if isinstance(value, str):
        return _CONTROL.sub(lambda found: printable(found[0]), value)
    return str(value).lower() if isinstance(value, bool) else value


def _widths(
    columns: Sequence[Column], rows: Sequence[Row], *, breaks_titles: bool = False
) -> list[int]:
    return [
        max(
            cell_len(text)
            for text in (
                *(c.title.split() if breaks_titles else [c.title]),
                *(row.get(c.key, "") for row in rows),
            )
        )
        for c in columns
    ]


def _dropped(columns: list[Column], rows: Sequence[Row], width: int) -> list[Column]:
    """Leave out columns that may be dropped until the rest fits."""
    while not _fits(columns, rows, width):
        if not (droppable := [column for column in columns if column.may_drop]):
            break
        columns = [column for column in columns if column is not droppable[-1]]
    return columns


def _fits(columns: Sequence[Column], rows: Sequence[Row], width: int) -> bool:
    return sum(_widths(columns, rows)) + len(_GAP) * (len(columns) - 1) <= width


def _cut(columns: Sequence[Column], widths: list[int], width: int) -> list[int]:
    """Narrow the columns that may be cut until all fit, down to `_MIN_WIDTH` each."""
    most = max(width, _MIN_WIDTH)
    widths = [min(w, most) if c.may_cut else w for c, w in zip(columns, widths, strict=True)]
    excess = sum(widths) + len(_GAP) * (len(columns) - 1) - width
    while excess > 0:
        choice = [i for i, column in enumerate(columns) if column.may_cut]
        widest = max(choice, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _MIN_WIDTH:
            break
        widths[widest] -= 1
        excess -= 1
    return widths


def _heading(columns: Sequence[Column], widths: Sequence[int]) -> list[_Line]:
    """Give the titles, each broken at its words where its column is narrower."""
    broken = [_wrapped(c.title, width) for c, width in zip(columns, widths, strict=True)]
    keys = [column.key for column in columns]
    return [
        _line(dict(zip(keys, parts, strict=True)), columns, widths, "bold")
        for parts in zip_longest(*broken, fillvalue="")
    ]


def _line(row: Row, columns: Sequence[Column], widths: Sequence[int], style: str = "") -> _Line:
    """Give a row in one style, or each cell in that of its column."""
    pieces, before = list[tuple[str, str]](), ""
    for column, width in zip(columns, widths, strict=True):
        cell = row.get(column.key, "")
        if column.may_cut and cell_len(cell) > width:
            cell = _shortened(cell, width - 1, keeps_end=column.cuts_start)
        padding = " " * (width - cell_len(cell))
        pieces.append((before + (padding if column.right else ""), ""))
        pieces.append((cell, style or (column.style(cell) if column.style else "")))
        before = ("" if column.right else padding) + _GAP
    return pieces


def _shortened(cell: str, width: int, *, keeps_end: bool) -> str:
    if not keeps_end:
        return set_cell_size(cell[: _LOOKED_AT * width], width) + "…"
    cell = cell[-_LOOKED_AT * width :]
    while cell_len(cell) > width:
        cell = cell[1:]
    return "…" + cell


def _remark(cell: str | None, width: int | None) -> list[_Line]:
    lines = _wrapped(
        cell or "", None if width is None else max(width - _INDENT, 20), cuts_words=True
    )
    return [[(" " * _INDENT + line, "dim")] for line in lines]


def _value_lines(value: str | WithCommand, room: int | None) -> list[str]:
    if isinstance(value, str):
        return _wrapped(printable(value), room)
    before, command = printable(value.before), printable(value.command)
    if room is None or cell_len(before + command) <= room:
        return [before + command]
    lines = [before]
    for word in _SHELL_WORD.findall(command):
        if cell_len(lines[-1]) + cell_len(word) + len(_GO_ON) > room and lines[-1].strip():
            lines.append("")
        lines[-1] += f"{word} "
    last = len(lines) - 1
    begins = 1 if lines[0] == before else 0  # before it there is no command to go on with
    return [
        line.rstrip() + (_GO_ON if begins <= number < last else "")
        for number, line in enumerate(lines)
    ]


def _wrapped(
    text: str, room: int | None, *, cuts_words: bool = False, below: str = ""
) -> list[str]:
    """Wrap a text at its words; an address or a path that is longer than a line stays whole."""
    if room is None:
        return [text]
    return textwrap.wrap(
        text, room, subsequent_indent=below, break_on_hyphens=False, break_long_words=cuts_words
    )


def _text(lines: Sequence[_Line], terminal: Terminal) -> str:
    if not terminal.color:
        plain = ("".join(text for text, _ in line) for line in lines)
        return "".join(f"{line.rstrip()}\n" for line in plain)
    from rich.console import Console  # as for the width
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=10_000)
    for line in lines:
        text = Text.assemble(*line)
        text.rstrip()
        console.print(text, soft_wrap=True)
    return out.getvalue()

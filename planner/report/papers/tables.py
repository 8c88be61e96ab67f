"""Tables of papers as text for a terminal, as Markdown, as CSV and as plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from planner.paper_tables._values import Cell, PaperTable, TableColumn
from planner.quantities import printable
from planner.report.table import Column, Terminal, render_csv, render_table

_MISSING = "missing"


def paper_table_text(table: PaperTable, terminal: Terminal) -> str:
    """Give a table as text; why something is missing stands below its row.

    Of a table that is too wide for the terminal the last columns stand there too.
    """
    shown = list(table.columns)
    while terminal.width is not None:
        plain = _table_text(table, shown, Terminal(width=terminal.width))
        needed = [column for column in shown if not column.may_drop]
        width = max(map(cell_len, plain.splitlines()), default=0)
        if width <= terminal.width or len(needed) == 1:
            break
        shown.remove(needed[-1])
    return _table_text(table, shown, terminal)


def _table_text(table: PaperTable, shown: Sequence[TableColumn], terminal: Terminal) -> str:
    columns = [
        Column(
            key=column.key,
            title=column.title.upper(),
            right=column.is_number,
            may_drop=column.may_drop,
            may_cut=not column.is_number,
        )
        for column in shown
    ]
    below = [column for column in table.columns if column not in shown]
    columns.append(Column(key=_MISSING, title=_MISSING.upper(), is_remark=True))
    rows = [
        {column.key: _short(column.cell_of(row)) for column in shown}
        | {_MISSING: "; ".join(filter(None, (_values_of(row, below), _missing_of(table, row))))}
        for row in table.rows
    ]
    return render_table(rows, columns, terminal)


def paper_table_markdown(table: PaperTable) -> str:
    """Give a table in Markdown, without its title."""
    used = table.used_columns
    lines = [
        _markdown_row([column.title for column in used]),
        _markdown_row(["---:" if column.is_number else "---" for column in used]),
    ]
    lines += [_markdown_row([column.cell_of(row).text for column in used]) for row in table.rows]
    return "\n".join(lines) + "\n"


def paper_table_csv(table: PaperTable) -> str:
    """Give a table as CSV: numbers, the ends of their intervals, and why others are missing."""
    fields: list[str] = []
    for column in table.columns:
        fields.append(column.key)
        if any(column.cell_of(row).low is not None for row in table.rows):
            fields += [f"{column.key}_ci_low", f"{column.key}_ci_high"]
    rows = [_record(table, row) for row in table.rows]
    return render_csv(rows, [*fields, "source", _MISSING])


def paper_table_json(table: PaperTable) -> dict[str, Any]:
    """Give a table as plain values."""
    return {
        "key": table.key,
        "title": table.title,
        "source": table.source,
        "notes": list(table.notes),
        "rows": [
            {column.key: _cell_json(column.cell_of(row), column) for column in table.columns}
            for row in table.rows
        ],
    }


def _cell_json(cell: Cell, column: TableColumn) -> Any:
    """Give a cell: a number, one with its interval, the reason why there is none, or a text."""
    if cell.missing is not None:
        return {_MISSING: cell.missing}
    if cell.low is not None:
        return {"median": cell.number, "ci_low": cell.low, "ci_high": cell.high}
    if cell.number is not None:
        return cell.number
    return cell.text or None


def _record(table: PaperTable, row: Mapping[str, Cell]) -> dict[str, object]:
    found: dict[str, object] = {}
    for column in table.columns:
        cell = column.cell_of(row)
        has_text = cell.number is None and cell.missing is None
        found[column.key] = cell.text if has_text else cell.number
        found[f"{column.key}_ci_low"], found[f"{column.key}_ci_high"] = cell.low, cell.high
    is_published = any(
        column.key.startswith("published") and column.cell_of(row).number is not None
        for column in table.columns
    )
    found["source"] = table.source if is_published else None
    return found | {_MISSING: _missing_of(table, row)}


def _missing_of(table: PaperTable, row: Mapping[str, Cell]) -> str:
    lacking = [
        (column.title, cell.missing)
        for column in table.columns
        if (cell := column.cell_of(row)).missing is not None
    ]
    return "; ".join(f"{title}: {why}" for title, why in lacking)


def _values_of(row: Mapping[str, Cell], columns: Sequence[TableColumn]) -> str:
    """Name the values of some columns; what is missing is said elsewhere."""
    cells = [(column.title, column.cell_of(row)) for column in columns]
    known = [(title, cell) for title, cell in cells if cell.text and cell.missing is None]
    return "; ".join(f"{title}: {cell.text}" for title, cell in known)


def _short(cell: Cell) -> str:
    return _MISSING if cell.missing is not None else cell.text


def _markdown_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


def markdown_text(text: str) -> str:
    """Escape what Markdown would take for its own."""
    plain = printable(text)
    for sign in ("\\", "|", "`", "*", "_", "<", "["):
        plain = plain.replace(sign, f"\\{sign}")
    return plain

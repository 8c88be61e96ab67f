"""Values of a report: tables with a number, or the reason why there is none, in each cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.quantities import format_interval, format_number
from planner.records.usage_record import HostUsage
from planner.sweeps.sweep_record import StoredSweep
from probes.timing import Interval

NOT_FOUND = "not found here"
"""In place of a published figure that nobody could look up: none is made up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of a table."""

    text: str = ""
    """As a person reads it."""

    number: float | None = None
    low: float | None = None
    high: float | None = None
    """Ends of its 95 % interval."""

    missing: str | None = None
    """Why there is no number."""

    @classmethod
    def measured(cls, interval: Interval) -> Cell:
        """Give a measured value."""
        return cls(
            text=format_interval(interval),
            number=interval.median,
            low=interval.low,
            high=interval.high,
        )

    @classmethod
    def of(cls, interval: Interval | None, why: str) -> Cell:
        """Give a measured value, or why there is none."""
        return cls.lacking(why) if interval is None else cls.measured(interval)

    @classmethod
    def published(cls, value: float | None) -> Cell:
        """Give a figure of a paper, ``None`` where it was not found."""
        if value is None:
            return cls(text=NOT_FOUND)
        return cls(text=f"{value:g}", number=value)

    @classmethod
    def counted(cls, value: float) -> Cell:
        """Give a number that is exact."""
        whole = float(value).is_integer()
        return cls(text=f"{value:.0f}" if whole else format_number(value), number=value)

    @classmethod
    def lacking(cls, why: str) -> Cell:
        """Give the reason why there is nothing."""
        return cls(text=f"missing: {why}", missing=why)


EMPTY = Cell()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """One column."""

    key: str
    title: str

    is_number: bool = False
    """Whether its cells are numbers, with their intervals where they are measured."""

    may_drop: bool = False
    """Whether a narrow terminal does without it."""

    def cell_of(self, row: Mapping[str, Cell]) -> Cell:
        """Give its cell of a row, an empty one where the row has none."""
        return row.get(self.key, EMPTY)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table of a paper, with our figures in it."""

    key: str
    """Of its file, of letters, digits and hyphens."""

    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[Mapping[str, Cell], ...]
    """By the columns' keys; a cell that is not there is empty."""

    source: str | None = None
    """Where the published figures are from; ``None`` where there are none."""

    notes: tuple[str, ...] = ()

    @property
    def used_columns(self) -> list[TableColumn]:
        """Those that are not empty in every row."""
        return [c for c in self.columns if any(c.cell_of(row).text for row in self.rows)]

    @property
    def all_notes(self) -> list[str]:
        """Where the published figures are from, and the notes."""
        return [*([f"Published: {self.source}."] if self.source else []), *self.notes]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsagePlots:
    """What trainings used over time, each quantity in a plot with a line for each training."""

    key: str
    title: str

    usage: Mapping[str, HostUsage]
    """By the name of the line."""

    made_up: frozenset[str] = frozenset()
    """Names of lines whose data were generated."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlots:
    """What a sweep shows over its batches."""

    key: str
    title: str

    sweep: StoredSweep | None
    """``None`` where none is stored."""

    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCurve:
    """One line of a plot, with an interval at each point."""

    label: str
    points: tuple[tuple[float, Interval], ...]
    """Pairs of x and y."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePlot:
    """A plot of measured points over whole numbers."""

    key: str
    title: str
    x_title: str
    y_title: str
    curves: tuple[MeasuredCurve, ...]
    """Empty where nothing is measured: the notes say why."""

    notes: tuple[str, ...] = ()


PaperPlot = UsagePlots | SweepPlots | CurvePlot


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperSection:
    """All that a report says of one paper."""

    name: str
    title: str
    citation: str
    tables: tuple[PaperTable, ...]
    plots: tuple[PaperPlot, ...]

    @property
    def key(self) -> str:
        """Its name within a page."""
        return f"paper-{self.name.replace('_', '-')}"

"""The commands ``ddlplan sweep``."""

from __future__ import annotations

from pathlib import Path

from launch.reports import Report
from planner.api import sweeps
from planner.errors import CancelledError
from planner.quantities import format_count, format_duration
from planner.records.job_record import JobKind
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.page.files import check_page, write_page
from planner.report.page.sweep import sweep_page
from planner.report.sweeps.tables import (
    point_line,
    record_json,
    sweep_csv,
    sweep_json,
    sweep_text,
    sweeps_table,
)
from planner.supervision.own_job import recorded_job
from planner.supervision.sweep_listener import SweepListener
from planner.sweeps.findings import point_figures
from planner.sweeps.reports import BatchProgress, PointDone, SweepOpened
from planner.sweeps.sweep_record import StoredSweep, SweepPoint, SweepRecord
from planner.sweeps.sweep_request import SweepRequest


def run_sweep(
    request: SweepRequest, db: str, out: Output, *, html: Path | None, waits: bool
) -> None:
    """Sweep on this machine, and show what was found."""
    if html is not None:
        check_page(html)
    with recorded_job(db, JobKind.SWEEP) as job:
        display = SweepDisplay(out)
        try:
            with display:
                listener = SweepListener(job, display)
                result = sweeps.sweep(request, db=db, listener=listener, waits=waits)
        except (KeyboardInterrupt, CancelledError):
            display.tell_what_is_left()
            raise
        took = format_duration(result.elapsed_s)
        points = format_count(result.new_points, "point")
        before = len(result.sweep.points) - result.new_points
        stored = f", {before} stored before" if before else ""
        out.note(f"sweep {result.sweep.record.id}: {points} in {took}{stored}")
        _show(result.sweep, out, html=html)


def list_sweeps(db: str, out: Output, use_case: str | None) -> None:
    """Show the sweeps. Where there was none yet there are none, which is no error."""
    found: list[SweepRecord] = []
    with out.missing_as_empty():
        found = sweeps.find(use_case, db=db)
        if not found:
            out.note("no sweeps: ddlplan sweep makes one")
    out.write_text(lambda terminal: sweeps_table(found, terminal))
    out.finish([record_json(record) for record in found])


def show_sweep(db: str, out: Output, sweep_id: int, *, html: Path | None) -> None:
    """Show one sweep."""
    _show(sweeps.get(sweep_id, db=db), out, html=html)


def _show(sweep: StoredSweep, out: Output, *, html: Path | None) -> None:
    if html is not None:
        write_page(html, sweep_page(sweep))
        out.note(f"wrote {html}")
    out.write_text_or_csv(lambda terminal: sweep_text(sweep, terminal), lambda: sweep_csv(sweep))
    out.finish(sweep_json(sweep))


class SweepDisplay(LiveDisplay):
    """Shows a sweep as a `LiveDisplay`, and each point as a line about the work."""

    def __init__(self, out: Output) -> None:
        super().__init__(out)
        self._record: SweepRecord | None = None
        self._points: list[SweepPoint] = []

    def __call__(self, report: Report, host: str | None = None, /) -> None:
        super().__call__(report, host)
        match report:
            case SweepOpened(record=record, points=points):
                self._record, self._points = record, list(points)
                head = f"sweep {record.id}: {format_count(record.size, 'point')}"
                if points:
                    head = f"sweep {record.id} goes on: {len(points)} of {record.size} points"
                head += ", generated data" if record.is_generated else ""
                self._out.note(f"{head}; the settings of a batch take turns")
            case BatchProgress(batch=batch, steps=steps, total=total):
                what = f"batch {batch}: {' and '.join(report.settings)}"
                self._show(what, steps, total, f"step {steps}/{total}")
            case PointDone(point=point):
                self._end_point(point)

    def tell_what_is_left(self) -> None:
        """Say how far it came."""
        if (record := self._record) is not None:
            stored = f"{len(self._points)} of {record.size} points are stored"
            self._out.note(f"sweep {record.id}: {stored}; the same command goes on from here")

    def _end_point(self, point: SweepPoint) -> None:
        assert self._record is not None  # the sweep has been opened
        self._points.append(point)
        sweep = StoredSweep(record=self._record, points=self._points)
        label = self._record.settings[point.setting].label
        width = max(len(setting.label) for setting in self._record.settings)
        self._out.note(point_line(f"{label:<{width}}", point_figures(sweep, point)))

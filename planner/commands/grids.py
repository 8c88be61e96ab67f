"""The commands ``ddlplan trials export`` and ``ddlplan tune --replay``."""

from __future__ import annotations

from pathlib import Path

from planner.api import grids
from planner.commands.tune import show_here
from planner.quantities import format_count
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.tuning.tune_request import TuneRequest


def export_grid(db: str, out: Output, use_case: str, node: str | None, path: Path) -> None:
    """Write trials to a file, and say how many."""
    grid = grids.export(use_case, path, node, db=db)
    trials = format_count(len(grid.results), "trial")
    out.write_line(f"{trials} of {use_case} on {grid.node.node}: {path}")
    out.finish(
        {
            "file": str(path),
            "trials": len(grid.results),
            "node": grid.node.node,
            "use_case": use_case,
        }
    )


def replay_grid(request: TuneRequest, path: Path, out: Output) -> None:
    """Search on recorded trials, and show what was found."""
    with LiveDisplay(out, ("replay",)) as display:
        result = grids.replay(path, request, seed=request.workload.seed, listener=display)
    show_here(result, "nothing: recorded trials were replayed", out)

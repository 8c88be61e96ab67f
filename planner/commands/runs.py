"""The commands ``ddlplan runs`` and ``ddlplan weights``: trainings, and what they left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from launch.reports import Working
from planner.api import trainings
from planner.commands.signals import cancel_on_signals
from planner.commands.training import describe_onnx
from planner.errors import NoDatabaseError
from planner.jobs.training import RUNS
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.runs import run_text, runs_table
from planner.report.table import detect_terminal
from probes import codec


def list_runs(db: str, out: Output, use_case: str | None, state: TrainingStatus | None) -> None:
    """Show the trainings. Where nothing was launched yet there are none, which is no error."""
    found: list[TrainingRecord] = []
    states = None if state is None else [state]
    try:
        found = trainings.find(use_case, states=states, db=db)
        if not found:
            out.note("no trainings: ddlplan launch makes one")
    except NoDatabaseError as error:
        out.warn(str(error))
    if found and not out.as_json:
        sys.stdout.write(runs_table(found, detect_terminal(sys.stdout, os.environ)))
    out.finish([_to_json(record) for record in found])


def show_run(db: str, out: Output, training_id: int) -> None:
    """Show one training."""
    record = trainings.get(training_id, db=db)
    if not out.as_json:
        usage = trainings.get_usage(training_id, db=db)
        sys.stdout.write(run_text(record, usage, detect_terminal(sys.stdout, os.environ)))
    out.finish(_to_json(record))


def export_onnx(
    out: Output, run: str, path: Path, *, data: Path | None = None, best: bool = False
) -> None:
    """Write the model of a run as an ONNX file; a number names a folder in ``runs/``."""
    folder = RUNS / run if run.isdecimal() else Path(run)
    with cancel_on_signals(out.warn) as cancellation, LiveDisplay(out) as display:
        display(Working(what="loading PyTorch and exporting the model"))
        saved = trainings.export_onnx(
            folder, path, data=data, best=best, listener=display, cancellation=cancellation
        )
    out.write_line(f"onnx       {describe_onnx(saved, None)}")
    out.finish(codec.to_builtins(saved))


def _to_json(record: TrainingRecord) -> object:
    return codec.to_builtins(record, null_for_nan=True)

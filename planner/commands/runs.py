"""The commands ``ddlplan runs`` and ``ddlplan weights``: trainings, and what they left."""

from __future__ import annotations

from pathlib import Path

from launch.reports import Working
from planner.api import trainings
from planner.commands.signals import cancel_on_signals
from planner.commands.training import describe_onnx
from planner.jobs.training import RUNS
from planner.records.training_record import TrainingRecord, TrainingStatus
from planner.report.figures.figure import Figure
from planner.report.figures.picture import picture
from planner.report.figures.training_figures import compared_figures, epoch_figures
from planner.report.figures.usage_figures import learning_figures, machine_use_figures
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.report.page.files import write_page
from planner.report.runs import mark_title, run_text, runs_csv, runs_table
from planner.report.training_comparison import (
    TrainingComparison,
    TrainingSide,
    compared_trainings_csv,
    compared_trainings_text,
    side_labels,
)
from planner.scripts.naming import describe_trained
from probes import codec


def list_runs(db: str, out: Output, use_case: str | None, state: TrainingStatus | None) -> None:
    """Show the trainings. Where nothing was launched yet there are none, which is no error."""
    found: list[TrainingRecord] = []
    states = None if state is None else [state]
    with out.missing_as_empty():
        found = trainings.find(use_case, states=states, db=db)
        if not found:
            out.note("no trainings: ddlplan launch makes one")
    out.write_text_or_csv(lambda terminal: runs_table(found, terminal), lambda: runs_csv(found))
    out.finish([_to_json(record) for record in found])


def show_run(db: str, out: Output, training_id: int, plot: Path | None) -> None:
    """Show one training, and draw it where a file is named."""
    record = trainings.get(training_id, db=db)
    usage = trainings.get_usage(training_id, db=db)
    if plot is not None:
        figures = epoch_figures(record)
        figures += [*learning_figures(usage), *machine_use_figures(usage)]
        title = f"Training {record.id}: {describe_trained(record.use_case)}"
        _draw(figures, mark_title(title, record), plot, out)
    out.write_text(lambda terminal: run_text(record, usage, terminal))
    out.finish(_to_json(record))


def compare_runs(db: str, out: Output, first_id: int, second_id: int, plot: Path | None) -> None:
    """Show how two trainings differ, and draw them where a file is named."""
    first, second = (
        TrainingSide(record=trainings.get(each, db=db), usage=trainings.get_usage(each, db=db))
        for each in (first_id, second_id)
    )
    comparison = TrainingComparison(first=first, second=second)
    for warning in comparison.warnings:
        out.warn(warning)
    if plot is not None:
        usage = {
            label if len(side.usage) == 1 else f"{label}, {host}": use
            for label, side in zip(side_labels(comparison.sides), comparison.sides, strict=True)
            for host, use in side.usage.items()
        }
        figures = compared_figures([first.record, second.record])
        figures += [*learning_figures(usage), *machine_use_figures(usage)]
        title = f"Trainings {first_id} and {second_id}"
        _draw(figures, mark_title(title, first.record, second.record), plot, out)
    out.write_text_or_csv(
        lambda terminal: compared_trainings_text(comparison, terminal),
        lambda: compared_trainings_csv(comparison),
    )
    out.finish(comparison.to_json())


def _draw(figures: list[Figure], title: str, file: Path, out: Output) -> None:
    write_page(file, picture(figures, title), option="--plot")
    out.note(f"wrote {file}")


def export_onnx(out: Output, run: str, path: Path, *, data: Path | None, best: bool) -> None:
    """Write the model of a run as an ONNX file; a number names a folder in ``runs/``."""
    folder = RUNS / run if run.isdecimal() else Path(run)
    with cancel_on_signals(out.warn) as cancellation, LiveDisplay(out) as display:
        display(Working(what="loading PyTorch and exporting the model"))
        saved = trainings.export_onnx(
            folder, path, data=data, best=best, listener=display, cancellation=cancellation
        )
    out.write_fact("onnx", describe_onnx(saved, None))
    out.finish(codec.to_builtins(saved))


def _to_json(record: TrainingRecord) -> object:
    return codec.to_builtins(record, null_for_nan=True)

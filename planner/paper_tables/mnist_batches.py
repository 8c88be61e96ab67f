"""MNIST over batch sizes and device counts: time per epoch, loss and accuracy, from sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.paper_tables._base import Paper
from planner.paper_tables._evidence import StoredEvidence, SweepEvidence, mark_generated
from planner.paper_tables._reasons import (
    data_option,
    db_option,
    why_devices_lack,
    why_no_gpus,
)
from planner.paper_tables._values import (
    NOT_FOUND,
    Cell,
    PaperPlot,
    PaperTable,
    SweepPlots,
    TableColumn,
)
from planner.paper_tables._wanted import Wanted, WantedSweep, sweep_key
from planner.quantities import format_value
from planner.sweeps.findings import (
    PointFigures,
    all_figures,
    find_sentences,
    list_batches,
    why_no_speedup,
)
from planner.sweeps.sweep_record import StoredSweep
from planner.trials.result import Outcome
from probes.hardware import Hardware

_CASES = ("mnist_cnn", "mnist_resnet18")
_MEASURED = "mnist_cnn"
"""The other one takes minutes for each epoch on a few cores: a sweep of it is asked for by hand."""

_ALL_BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_BATCHES = (64, 512, 4096)
"""What a report measures: a few of them show where more workers pay."""

_COLUMNS = (
    TableColumn(key="use_case", title="Use case"),
    TableColumn(key="batch", title="Batch", is_number=True),
    TableColumn(key="devices", title="Devices"),
    TableColumn(key="published", title="Published", is_number=True, may_drop=True),
    TableColumn(key="epoch", title="s an epoch", is_number=True),
    TableColumn(key="speedup", title="Times the first devices", is_number=True),
    TableColumn(key="loss", title="Test loss", is_number=True),
    TableColumn(key="accuracy", title="Test accuracy, %", is_number=True),
    TableColumn(key="data", title="Data", may_drop=True),
)


class MnistBatches(Paper):
    """Sweeps of batches and devices, as shopping guides for hardware show them."""

    name = "mnist_batches"
    order = 2
    title = "MNIST: batch sizes and device counts"
    citation = f"Papers that sweep batch sizes on MNIST: {NOT_FOUND}"
    use_cases = _CASES

    def tables(self, held: StoredEvidence) -> Sequence[PaperTable]:
        notes = [
            "Steps alone, without start and validation. Times hold for another run at another "
            "time; speeds are turn by turn at the same batch. Accuracies are shares of the test "
            "samples, after one training each; losses have no interval: their mean is stored, "
            "not its spread.",
        ]
        for case in _CASES:
            if (sweep := _sweep_of(held, case)) is None:
                continue
            record = sweep.record
            notes.append(held.describe_sweep(record))
            if others := len(held.swept(record.use_case)) - 1:
                notes.append(f"{record.use_case}: other stored sweeps, not shown: {others}.")
            notes += find_sentences(sweep)
        notes.append("Published sweeps of MNIST: not found here.")
        return [
            PaperTable(
                key="mnist-batches",
                title=self.title,
                columns=_COLUMNS,
                rows=tuple(row for case in _CASES for row in _rows(held, case)),
                notes=tuple(notes),
            )
        ]

    def plots(self, held: StoredEvidence) -> Sequence[PaperPlot]:
        return [
            SweepPlots(
                key=f"mnist-{case.removeprefix('mnist_')}",
                title=mark_generated(
                    f"{case} over batches", [sweep.record.data is None] if sweep else []
                ),
                sweep=sweep,
                notes=() if sweep is not None else (f"missing: {_why(held, case)}.",),
            )
            for case in _CASES
            for sweep in [_sweep_of(held, case)]
        ]

    def wanted(self, held: StoredEvidence, node: Hardware) -> Sequence[Wanted]:
        mine = [
            sweep
            for sweep in held.swept(_MEASURED)
            if sweep.record.fingerprint == node.fingerprint() and sweep.record.is_finished
            if held.suits(_MEASURED, sweep.record.data)
            if set(_BATCHES) <= set(sweep.record.batches)
        ]
        return [] if mine else [WantedSweep(use_case=_MEASURED, batches=_BATCHES)]


def _sweep_of(held: StoredEvidence, case: str) -> StoredSweep | None:
    """Give the sweep to show: the newest of those with the most points.

    One of the data that were asked for comes first, and one of given data before generated ones.
    """

    def rank(one: SweepEvidence) -> tuple[bool, bool, int]:
        data = one.record.data
        return held.suits(case, data), data is not None, one.record.num_points

    best = max(held.swept(case), key=rank, default=None)
    return None if best is None else best.sweep


def _rows(held: StoredEvidence, case: str) -> Iterator[Mapping[str, Cell]]:
    sweep = _sweep_of(held, case)
    if sweep is None:
        yield {
            "use_case": Cell(text=case),
            "published": Cell.published(None),
            "epoch": Cell.lacking(_why(held, case)),
        }
        return
    record = sweep.record
    head = {
        "use_case": Cell(text=case),
        "published": Cell.published(None),
        "data": Cell(text=record.data or "generated"),
    }
    for one in all_figures(sweep):
        yield {
            **head,
            "batch": Cell.counted(one.point.batch),
            "devices": Cell(text=record.settings[one.point.setting].label),
            **_figures(sweep, one),
        }
    for why in _why_batches_lack(held, case, sweep):
        yield {**head, "epoch": Cell.lacking(why)}
    command = _sweep_command(held, case, record.data)
    if (why_few := why_devices_lack(held, record, command)) is not None:
        yield {**head, "devices": Cell(text="others"), "epoch": Cell.lacking(why_few)}
    if (why_none := why_no_gpus(held, record)) is not None:
        yield {**head, "devices": Cell(text="GPUs"), "epoch": Cell.lacking(why_none)}


def _why_batches_lack(held: StoredEvidence, case: str, sweep: StoredSweep) -> Iterator[str]:
    """Say which batches a sweep has not trained yet, and which of the papers' it does not have."""
    record = sweep.record
    settings = range(len(record.settings))
    left = [b for b in record.batches if any(sweep.find(b, number) is None for number in settings)]
    if left:
        batches = list_batches(left, record.batches)
        yield f"sweep {record.id} has not trained {batches} on all devices: its command goes on"
    others = [batch for batch in _ALL_BATCHES if batch not in record.batches]
    if others:
        batches = list_batches(others, sorted({*_ALL_BATCHES, *record.batches}))
        yield f"sweep {record.id} has no {batches}: {_sweep_command(held, case, record.data)}"


def _figures(sweep: StoredSweep, one: PointFigures) -> Mapping[str, Cell]:
    if one.point.outcome is not Outcome.OK:
        return {"epoch": Cell.lacking(one.point.reason or str(one.point.outcome))}
    cells = {"epoch": Cell.of(one.epoch_s, "too few turns counted")}
    if one.point.setting:  # the first is what others are compared with
        cells["speedup"] = Cell.of(one.speedup, why_no_speedup(sweep, one.point))
    untested = Cell.lacking(
        "not measured on a test set" if sweep.record.test_samples else "there is no test set"
    )
    cells["loss"] = cells["accuracy"] = untested
    if one.loss is not None:
        cells["loss"] = Cell(text=format_value(one.loss), number=one.loss)
    if one.accuracy is not None:
        cells["accuracy"] = Cell.measured(one.accuracy.scaled(100))
    return cells


def _why(held: StoredEvidence, case: str) -> str:
    return held.reasons.get(sweep_key(case), f"no sweep stored: {_sweep_command(held, case)}")


def _sweep_command(held: StoredEvidence, case: str, data: str | None = None) -> str:
    batches = ",".join(map(str, _ALL_BATCHES))
    options = f"{data_option(data)} --batches {batches}{db_option(held)}"
    return f"ddlplan sweep --use-case {case}{options}"

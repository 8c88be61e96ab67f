"""Event files of a training: its epochs as TensorBoard reads them, written while it runs."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path

from launch.packages.install_command import install_command
from launch.reports import Described, EpochDone, Report, Warned
from launch.system.durable_files import (
    check_folder,
    create_private,
    explain_os_error,
    naming_file,
)
from planner.errors import UsageError
from planner.jobs.training import RunBegun
from planner.trials.reports import Listener


def check_event_folder(folder: Path) -> None:
    """Check before a training that its event files can be written; nothing is made.

    Raises:
        UsageError: TensorBoard is not installed, or the folder cannot be made or written.
    """
    if find_spec("tensorboard") is None:
        raise UsageError(f"no tensorboard installed: {install_command('ddlplan[tensorboard]')}")
    try:
        check_folder(folder)
    except OSError as error:
        raise UsageError(
            f"--tensorboard {folder}: {explain_os_error(error, named=folder)}: name another folder"
        ) from error


class EventFile:
    """Event file of one training, in a folder of its own; TensorBoard shows it as one run.

    Use it in a ``with`` block. What cannot be written is left out, and the training goes on.

    Args:
        folder: Of all trainings. This one's is ``run-N`` there, by the number of its run directory,
            or the next that is free.
        number: Of the run directory.
        warn: Takes what the user should hear: that epochs are not written.
    """

    def __init__(self, folder: Path, number: str, warn: Callable[[str], None]) -> None:
        # The package's own writer, without the thread of its EventFileWriter.
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._warn = warn
        self._writer: RecordWriter | None = None
        try:
            self.folder = _make_folder(folder, f"run-{number}")
            name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}.{os.getpid()}.0"
            self._writer = RecordWriter(create_private(self.folder / name))
        except OSError as error:
            self._give_up(error)

    def __enter__(self) -> EventFile:
        self._write(file_version="brain.Event:2")
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, epoch: EpochDone) -> None:
        """Write an epoch; its number is the step of TensorBoard."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _scalars(epoch)]
        self._write(step=epoch.epoch, summary=Summary(value=values))

    def mark_generated(self) -> None:
        """Write a text that the training's data were made up, which TensorBoard shows as one."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        words = "generated: the use case made its samples up"
        self._write(summary=text_pb("data", [words]))

    def _write(self, **content: object) -> None:
        from tensorboard.compat.proto.event_pb2 import Event

        if self._writer is None:
            return
        try:
            self._writer.write(Event(wall_time=time.time(), **content).SerializeToString())
            self._writer.flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self._writer = None
        self._warn(f"event files of TensorBoard are not written: {explain_os_error(error)}")


@contextmanager
def charting(folder: Path | None, listener: Listener) -> Iterator[Listener]:
    """Give a listener that writes event files as well; without a folder for them, the same one."""
    if folder is None:
        yield listener
        return
    with ExitStack() as opened:
        events: EventFile | None = None
        is_marked = False

        def on_report(report: Report, host: str | None = None, /) -> None:
            nonlocal events, is_marked
            match report:
                case RunBegun(run_directory=directory):
                    file = EventFile(
                        folder, Path(directory).name, lambda text: listener(Warned(message=text))
                    )
                    events = opened.enter_context(file)
                case Described(facts=facts) if events is not None and not is_marked:
                    if is_marked := facts.is_generated:  # each host says it
                        events.mark_generated()
                case EpochDone() if events is not None:
                    events.add(report)
            listener(report, host)

        yield on_report


def _make_folder(parent: Path, name: str) -> Path:
    """Make a folder of that name; with a number added where there is one already.

    Raises:
        OSError: It cannot be made.
    """
    with naming_file(parent):
        check_folder(parent)  # for mkdir, a link to nothing is there already, whatever is tried
    parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
        else:
            return folder


def _scalars(epoch: EpochDone) -> Iterator[tuple[str, float]]:
    """Give what TensorBoard shows of an epoch, by its name there."""
    if epoch.samples:  # else a checkpoint had its end, and it was only validated
        yield "loss/training", epoch.train_loss
        yield "samples_per_s", epoch.throughput_samples_per_s
    if epoch.validation_loss is not None:
        yield "loss/validation", epoch.validation_loss
    for name, value in epoch.metrics.items():
        yield f"metrics/{name}", value
    rates = epoch.learning_rates
    for number, rate in enumerate(rates):
        yield "learning_rate" if len(rates) == 1 else f"learning_rate/group_{number}", rate
    if epoch.noise is not None and epoch.noise.scale is not None:
        yield "noise_scale", epoch.noise.scale

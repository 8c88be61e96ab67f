"""Export of a run's weights: its use case is loaded in a process of its own, and writes a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.errors import CheckpointError, ExportError, ExportTargetError, LaunchError, UseCaseError
from launch.reports import OnnxSaved
from launch.system.durable_files import explain_os_error
from launch.system.run_directory import RunDirectory
from launch.workers.fork_server import ForkServer
from launch.workers.group import WorkerFailure
from launch.workers.task import Purpose, Task
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.errors import RunDirectoryError
from planner.trials.lone_task import run_lone_task
from planner.trials.reports import Listener, ignore
from probes import codec
from probes.errors import InvalidDocumentError

_KINDS: dict[str | None, type[LaunchError]] = {
    kind.__name__: kind for kind in (CheckpointError, ExportError, ExportTargetError, UseCaseError)
}


def export_onnx(
    run: Path,
    path: Path,
    *,
    data: Path | None = None,
    best: bool = False,
    listener: Listener = ignore,
    cancellation: Cancellation | None = None,
) -> OnnxSaved:
    """Write the model of a run as an ONNX file, in place of what was there, and check it.

    The use case is the one that ``job.json`` in the folder names: its code is run.

    Example:
        >>> from pathlib import Path
        >>> from planner.api import trainings
        >>> saved = trainings.export_onnx(Path("runs/1"), Path("model.onnx"))  # doctest: +SKIP
        >>> saved.largest_difference  # doctest: +SKIP
        2.4e-07

    Args:
        run: Folder of the run.
        path: Of the file.
        data: Where the data are now, if not where the run had them.
        best: Whether the weights of the best validation are meant, in place of the last ones.
        listener: Receives warnings.
        cancellation: Ends it.

    Raises:
        RunDirectoryError: It is no folder of a run, or has no such weights.
        ExportTargetError: The file cannot be written, or a library is missing.
        ExportError: The model cannot be exported, or the file computes something else.
        CheckpointError: The weights do not fit the model.
        UseCaseError: The use case or its data cannot be read.
        CancelledError: The end was asked for.
    """
    directory = RunDirectory(run.absolute())
    workload = _read_workload(directory)
    if data is not None:
        workload = replace(workload, data=str(data.absolute()))
    weights = directory.best_weights if best else directory.weights
    if not weights.is_file():
        made_by = "launch --keep-best writes it" if best else "its training did not come to its end"
        raise RunDirectoryError(f"no {weights.name} in {run}: {made_by}")
    task = Task(
        purpose=Purpose.EXPORT, workload=workload, weights=str(weights), onnx=str(path.absolute())
    )
    with ForkServer() as server:
        return run_lone_task(
            server,
            task,
            OnnxSaved,
            cancellation or Cancellation(),
            listener,
            doing="its model is exported",
            make_error=_make_error,
        )


def _read_workload(directory: RunDirectory) -> Workload:
    try:
        document = directory.job.read_bytes()
        values = codec.decode(document, dict[str, Any], source=str(directory.job))
        return codec.convert(values.get("workload"), Workload, source=str(directory.job))
    except OSError as error:
        raise RunDirectoryError(
            f"{explain_os_error(error)}: name the folder of a run, as runs/3"
        ) from error
    except InvalidDocumentError as error:
        raise RunDirectoryError(f"{directory.path} is no folder of a run: {error}") from error


def _make_error(failure: WorkerFailure) -> LaunchError:
    if (kind := _KINDS.get(failure.error)) is not None:
        return kind(failure.message.removeprefix(f"{failure.error}: "))
    return ExportError(f"the model was not exported: {failure.message}")

"""ONNX files of all built-in use cases: distance of their outputs from PyTorch, and size.

Each model with its initial weights is exported as `launch --onnx` does it at the end of a training,
on a few photos where the use case reads photos, and on its generated data otherwise. A model that
cannot be exported, or whose file computes something else, counts as missed, and the others go on.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from _block import Output, Result, begin, make_parser, run_bench
from _prepared_case import load_prepared
from PIL import Image

from launch.errors import ExportError, ExportTargetError, UseCaseError
from launch.onnx_export.comparison import TOLERANCE
from launch.onnx_export.exporting import check_target, export_model
from launch.use_cases import use_case_names
from launch.use_cases._base import UseCase

_PHOTOS = 6
"""Of each class."""


def main() -> int:
    """Measure and show."""
    _, out = begin(make_parser(__doc__))
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        photos, file = Path(folder, "photos"), Path(folder, "model.onnx")
        _write_photos(photos)
        check_target(file)
        exported = (_export(name, photos, file, out) for name in use_case_names())
        results = out.show_each(chain.from_iterable(exported))
    out.say()
    return out.conclude(results)


def _export(name: str, photos: Path, file: Path, out: Output) -> Iterator[Result]:
    case, data = _make_ready(name, photos)
    torch.manual_seed(0)
    figure = f"{name}: largest difference of outputs"
    started = time.perf_counter()
    try:
        saved = export_model(case, case.model(), case.dataset(data, train=True), file)
    except ExportTargetError:
        raise  # for each of them
    except ExportError as error:
        out.say(f"{name}: {error}")
        yield Result(figure, math.inf, high=TOLERANCE)
        return
    elapsed_s = time.perf_counter() - started
    yield Result(figure, saved.largest_difference, high=TOLERANCE)
    yield Result(f"{name}: size", saved.num_bytes / 1e6, "MB")
    yield Result(f"{name}: export and comparison", elapsed_s, "s")


def _make_ready(name: str, photos: Path) -> tuple[UseCase, Path | None]:
    """Give the photos to a use case that takes them; let others generate their data."""
    try:
        case = load_prepared(name, photos)
        case.dataset(photos, train=True)
    except UseCaseError:
        return load_prepared(name), None
    return case, photos


def _write_photos(folder: Path) -> None:
    generator = np.random.default_rng(0)
    for kind in ("fire", "neither", "smoke"):
        (folder / kind).mkdir(parents=True)
        for number in range(_PHOTOS):
            pixels = generator.integers(0, 256, (240, 320, 3), np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{number}.jpg")


if __name__ == "__main__":
    run_bench(main)

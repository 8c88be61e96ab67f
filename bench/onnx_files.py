"""ONNX files of all built-in use cases: distance of their outputs from PyTorch, and size.

Each model with its initial weights is exported as `launch --onnx` does it at the end of a training,
on a few photos where the use case reads photos, and on its generated data otherwise.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from _block import Output, Required, Result, make_parser, run_bench
from PIL import Image

from launch.errors import UseCaseError
from launch.onnx_export.comparison import TOLERANCE
from launch.onnx_export.exporting import check_target, export_model
from launch.use_cases import resolve, use_case_summaries
from launch.use_cases._base import UseCase

_PHOTOS = 6
"""Of each class."""


class _Silent:
    """Hears how data are made ready."""

    def progress(self, done: int, total: int, what: str) -> None:
        """Say nothing."""

    def warning(self, message: str) -> None:
        """Say nothing."""


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--use-case", help="this one only (all)")
    arguments = parser.parse_args()
    out = Output("onnx_files", as_json=arguments.json)
    out.introduce()
    names = [arguments.use_case] if arguments.use_case else list(use_case_summaries())
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        photos, file = Path(folder, "photos"), Path(folder, "model.onnx")
        _write_photos(photos)
        check_target(file)
        for name in names:
            case = resolve(name).load()
            data = _make_ready(case, photos)
            torch.manual_seed(0)
            started = time.perf_counter()
            saved = export_model(case, case.model(), case.dataset(data, train=True), file)
            elapsed_s = time.perf_counter() - started
            results += [
                Result(
                    figure=f"{name}: largest difference of outputs",
                    value=saved.largest_difference,
                    required=Required(high=TOLERANCE),
                ),
                Result(figure=f"{name}: size", value=saved.num_bytes / 1e6, unit="MB"),
                Result(figure=f"{name}: export and comparison", value=elapsed_s, unit="s"),
            ]
    out.say()
    return out.conclude(results)


def _make_ready(case: UseCase, photos: Path) -> Path | None:
    """Give the photos to a use case that takes them; let others generate their data."""
    try:
        case.prepare(photos, _Silent())
        case.dataset(photos, train=True)
    except UseCaseError:
        case.prepare(None, _Silent())
        return None
    return photos


def _write_photos(folder: Path) -> None:
    generator = np.random.default_rng(0)
    for kind in ("fire", "neither", "smoke"):
        (folder / kind).mkdir(parents=True)
        for number in range(_PHOTOS):
            pixels = generator.integers(0, 256, (240, 320, 3), np.uint8)
            Image.fromarray(pixels).save(folder / kind / f"{number}.jpg")


if __name__ == "__main__":
    run_bench(main)

"""VGG16 on small generated pictures, for machines without a GPU."""

from __future__ import annotations

from pathlib import Path

from pictures import GeneratedPictures

from launch.use_cases.complexsmall import ComplexSmall


class Small(ComplexSmall):
    """The model, loss and optimizer of `complexsmall`."""

    name = "vgg16-small"
    default_batch = 4

    def prepare(self, data: Path | None, report: object) -> None:
        """Nothing has to be made."""

    def dataset(self, data: Path | None, *, train: bool) -> GeneratedPictures:  # type: ignore[override]
        return GeneratedPictures(32 if train else 4, 64, 3)

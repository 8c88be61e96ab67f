"""The digits of `mnist_cnn` in short epochs, so that its loss is known often."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.data import Dataset, Subset

from launch.use_cases.mnist_cnn import MnistCnn

_SAMPLES, _VALIDATED = 6000, 2000


class ShortEpochs(MnistCnn):
    """Model, loss and optimizer of `mnist_cnn`; a tenth of its digits."""

    name = "short-epochs"

    def dataset(  # type: ignore[override] # a part of what it gives
        self, data: Path | None, *, train: bool
    ) -> Dataset[Any]:
        """Give the first digits."""
        return Subset(super().dataset(data, train=train), range(_SAMPLES if train else _VALIDATED))

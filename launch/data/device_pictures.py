"""Data set of decoded pictures on the device that trains."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from launch.data.decoded_pictures import DecodedPictures, make_batch
from launch.data.split import Indices

_COPY_SAMPLES = 256
"""Pictures copied at once."""


class DevicePictures(Dataset[Any]):
    """Decoded pictures, copied to a device once.

    Args:
        decoded: The pictures; those that are missing are decoded now.
        samples: Which of them will be read. Memory is allocated for all, so that a short trial
            needs as much as the training.
        device: Where they are copied to.
    """

    def __init__(self, decoded: DecodedPictures, samples: Indices, device: torch.device) -> None:
        self._source = decoded.source
        row_bytes = decoded.layout.picture_bytes
        self._rows = torch.empty(len(decoded), row_bytes, dtype=torch.uint8, device=device)
        for low in range(0, len(samples), _COPY_SAMPLES):
            piece = samples[low : low + _COPY_SAMPLES]
            self._rows[torch.tensor(piece, device=device)] = decoded.rows(piece).to(device)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indices: Indices) -> list[Any]:
        """Return a batch as `DecodedPictures` does, its pixels on the device."""
        chosen = torch.tensor(indices).to(self._rows.device, non_blocking=True)
        return make_batch(self._source, self._rows.index_select(0, chosen), indices)

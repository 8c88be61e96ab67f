"""How is a data set read that lies on the device that trains? There is nothing to wait for."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset

from launch.data.decoded_pictures import DecodedPictures, as_batch
from launch.data.split import Indices

_PIECE = 256
"""Pictures copied at once."""


class DevicePictures(Dataset[Any]):
    """Decoded pictures, copied to a device once.

    Args:
        decoded: The pictures; those that are missing are decoded now.
        samples: Which of them will be read. There is room on the device for all, so that a
            short trial needs as much memory as the training.
        device: Where they are kept.
    """

    def __init__(self, decoded: DecodedPictures, samples: Indices, device: torch.device) -> None:
        self._source = decoded.source
        row_bytes = decoded.layout.picture_bytes
        self._rows = torch.empty(len(decoded), row_bytes, dtype=torch.uint8, device=device)
        for low in range(0, len(samples), _PIECE):
            piece = samples[low : low + _PIECE]
            self._rows[torch.tensor(piece, device=device)] = decoded.rows(piece).to(device)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitems__(self, indices: Indices) -> list[Any]:
        """Give a batch as `DecodedPictures` does, its pixels on the device."""
        chosen = torch.tensor(indices).to(self._rows.device, non_blocking=True)
        return as_batch(self._source, self._rows.index_select(0, chosen), indices)

"""Contract of data sets whose pictures are decoded once.

The pixels are decoded and stored; a quick last part, such as a random flip, runs in each epoch.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


@runtime_checkable
class Pictures(Protocol):
    """A data set that can be decoded once: what it has beside ``__getitem__``.

    ``dataset[i]`` equals ``(finish(pixels(i) as a batch of one, draw(1))[0], target(i))`` to the
    last bit. The slow part, ``pixels``, depends on nothing random and is stored in a file; the rest
    runs for a whole batch at once, on the device that trains.
    """

    def __len__(self) -> int:
        """Count the samples."""

    def pixels_name(self) -> str:
        """Give a text that names the data set and its split, and that stays when pixels change.

        Where pictures are stored under a new key, those of the same name and another key are
        removed, but for what somebody has open.
        """

    def pixels_key(self) -> str:
        """Give a text that changes when any pixel of any sample may have."""

    def pixel_shape(self) -> tuple[int, int, int]:
        """Give height, width and channels, the same for every sample."""

    def pixels(self, index: int) -> NDArray[np.uint8]:
        """Decode one sample: height x width x channels.

        Called from several threads at once; draws nothing.
        """

    def target(self, index: int) -> Any:
        """Give what belongs to a sample, for torch's default collation."""

    def draw(self, count: int) -> Tensor | None:
        """Draw what is random in ``count`` samples, as ``__getitem__`` would one by one.

        Returns:
            A tensor on the CPU whose first dimension counts samples, ``None`` where nothing is.
        """

    def finish(self, pixels: Tensor, drawn: Tensor | None) -> Tensor:
        """Make a batch for the model.

        Args:
            pixels: uint8, samples x channels x height x width, on any device; not to be
                changed. Its strides are those of channels_last, or contiguous.
            drawn: What `draw` gave for these samples, on the same device.

        Returns:
            A batch with the strides of ``pixels``.
        """

"""AlexNet on photos with steps that are longer by a known time, for plans that differ by it."""

from __future__ import annotations

import time

from torch import Tensor

from launch.use_cases.simplebig import SimpleBig


class SlowedSimpleBig(SimpleBig):
    """The use case `simplebig`.

    Args:
        pause_s: Sleep before each loss, of which each worker has one for a micro-batch.
    """

    def __init__(self, pause_s: float = 0.0) -> None:
        self._pause_s = pause_s

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Give its loss, later."""
        time.sleep(self._pause_s)
        return super().loss(output, target)

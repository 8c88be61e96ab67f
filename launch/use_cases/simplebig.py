"""AlexNet on 6,003 photos of fire, smoke or neither: a simple model, a big data set."""

from __future__ import annotations

from torch import nn
from torchvision.models import alexnet

from launch.use_cases._photos import NUM_CLASSES, PhotoUseCase


class SimpleBig(PhotoUseCase):
    """SimpleBig of Lerat, Mahmoudi and Mahmoudi (2022)."""

    name = "simplebig"
    num_photos = 6003
    default_batch = 32

    def model(self) -> nn.Module:
        """Make AlexNet with random weights."""
        return alexnet(weights=None, num_classes=NUM_CLASSES)  # type: ignore[no-any-return]

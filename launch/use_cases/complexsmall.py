"""VGG16 on 791 photos of fire, smoke or neither: a complex model, a small data set."""

from __future__ import annotations

from torch import nn
from torchvision.models import vgg16

from launch.use_cases._photo_use_case import NUM_CLASSES, PhotoUseCase


class ComplexSmall(PhotoUseCase):
    """ComplexSmall of Lerat, Mahmoudi and Mahmoudi (2022).

    A step keeps about 75 MB of activations per photo beside 1.6 GB of weights, gradients and
    momentum: 16 photos fit into 4 GB, and one core finishes a step in 20 s.
    """

    name = "complexsmall"
    num_photos = 791
    default_batch = 16

    def model(self) -> nn.Module:
        """Make VGG16 with random weights."""
        return vgg16(weights=None, num_classes=NUM_CLASSES)  # type: ignore[no-any-return]

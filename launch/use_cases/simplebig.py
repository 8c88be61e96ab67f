"""AlexNet on 6,003 photos of fire, smoke or neither: a simple model, a big data set."""

from __future__ import annotations

import torch
from torch import nn
from torchvision.models import alexnet

from launch.use_cases._photo_use_case import NUM_CLASSES, PhotoUseCase


class SimpleBig(PhotoUseCase):
    """SimpleBig of Lerat, Mahmoudi and Mahmoudi (2022)."""

    name = "simplebig"
    num_photos = 6003
    default_batch = 32

    def model(self) -> nn.Module:
        """Make AlexNet with random weights that a signal passes through.

        torchvision leaves them as PyTorch's layers draw them, with deviation
        ``1 / sqrt(3 * fan_in)``. Eight layers of that fade the photo away: at this learning
        rate the loss stays at ln 3 for two epochs and more. ReLUs want ``sqrt(2 / fan_in)``, which
        is sqrt(6) times as wide: accuracy is then about 60 % after one.

        Source: He et al., "Delving Deep into Rectifiers", 2015, https://arxiv.org/abs/1502.01852.
        """
        model: nn.Module = alexnet(weights=None, num_classes=NUM_CLASSES)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if name.endswith("weight"):
                    parameter.mul_(6**0.5)
        return model

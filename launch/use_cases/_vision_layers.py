"""Networks of torchvision as consecutive layers, which pipelines are cut between."""

from __future__ import annotations

from torch import nn
from torchvision.models import VGG, AlexNet, ConvNeXt, EfficientNet, ResNet


def find_layers(model: nn.Module) -> nn.Sequential | None:
    """Give a network as layers that compute the same; ``None`` where its kind is not known here.

    Residual networks are cut at their blocks, whose shortcuts cross no cut. Others have steps of
    their own between features and classifier.
    """
    if isinstance(model, ResNet):
        head = (model.conv1, model.bn1, model.relu, model.maxpool)
        parts = (model.layer1, model.layer2, model.layer3, model.layer4)
        blocks = [block for part in parts for block in part]
        return nn.Sequential(*head, *blocks, model.avgpool, nn.Flatten(1), model.fc)
    if isinstance(model, AlexNet | VGG | EfficientNet):
        features, classifier = model.features.children(), model.classifier.children()
        return nn.Sequential(*features, model.avgpool, nn.Flatten(1), *classifier)
    if isinstance(model, ConvNeXt):  # its classifier flattens by itself
        return nn.Sequential(*model.features, model.avgpool, *model.classifier)
    return None

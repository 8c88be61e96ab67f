"""Examples with a handful of samples, whose one step moves weights by their gradient."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Subset

EXAMPLES = Path(__file__).parents[3] / "examples"


def load_example(name: str) -> Any:
    """Import a file of the examples."""
    spec = spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class OneStep:
    """Of sixteen samples."""

    def dataset(self, data, *, train: bool):
        return Subset(super().dataset(data, train=train), range(16 if train else 3))

    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=1.0)


class TextClassifier(OneStep, load_example("text_classifier").TextClassifier):
    pass


class UnetMasks(OneStep, load_example("unet").UnetMasks):
    pass


class Recommender(OneStep, load_example("recommender").Recommender):
    """Of so few users and things that several samples share some."""

    def __init__(self) -> None:
        super().__init__(users=9, things=5, width=4)

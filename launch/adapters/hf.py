"""Model of `transformers` as a use case: ``model(**batch).loss``, weighed by labels that count.

Most of these models take the mean of a cross entropy over all labels but those of -100. Which
labels that are differs: a causal model leaves out the first of each text, because each token
predicts the next one, and an encoder-decoder shifts its inputs in place of its labels. The names of
classes do not tell: `transformers.loss.loss_utils` is used by some of them only. So a small batch
is computed once, and what it gives to the cross entropy is compared with what is in the batch.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torch.overrides import TorchFunctionMode
from torch.utils.data import Dataset, IterableDataset, Subset

from launch.data.random_state import fixed_random_numbers
from launch.errors import UseCaseError
from launch.use_cases._adapter import check_norm
from launch.use_cases._base import UseCase
from launch.use_cases._settings import Settings, make_arguments

FORM = "hf:path/to/file.py:make"
MOST_OBJECTS = 1
PACKAGES = ("transformers",)

_IGNORED = -100
_DEFAULT_LR = 5e-5
"""That of `transformers.TrainingArguments`."""

_KEYS = (
    *("model", "train_dataset", "eval_dataset", "data_collator", "batch_size"),
    *("optimizer", "schedule", "max_gradient_norm", "remove_unused_columns"),
)
_REQUIRED = _KEYS[:2]
_PROBED_SAMPLES = 2


@dataclass(frozen=True, slots=True)
class _Labels:
    """Labels that a loss is a mean over."""

    key: str
    """Of the batch."""

    is_shifted: bool
    """Whether the first label of each text is left out."""

    def count(self, batch: Mapping[str, Tensor]) -> Tensor:
        labels = batch[self.key]
        return ((labels[..., 1:] if self.is_shifted else labels) != _IGNORED).sum()


class TransformersCase(UseCase):
    """What a user's function makes: a model, data and what makes batches of them.

    Args:
        objects: The function alone.
        settings: For it.
        spec: The use case's name in messages.
        data: What ``--data`` names, for a function with an argument ``data``.

    Attributes:
        origin: The function.

    Raises:
        UseCaseError: It is something else, or does not have these settings.
    """

    def __init__(
        self, objects: Sequence[Any], settings: Settings, spec: str, data: Path | None
    ) -> None:
        (self.origin,) = objects
        if isinstance(self.origin, nn.Module) or not callable(self.origin):
            raise UseCaseError(
                f"use case {spec}: found a {type(self.origin).__name__}: name a function that "
                "makes the model, so that each worker makes its own from the seed"
            )
        self.name = getattr(self.origin, "__name__", "transformers")
        self._spec = spec
        self._make = partial(self.origin, **make_arguments(self.origin, settings, spec, data))
        self._parts: dict[str, Any] | None = None
        self._columns: frozenset[str] | None = None
        self._labels: _Labels | None = None
        self._has_labels = False

    def _read(self) -> dict[str, Any]:
        """Call the function, and give what it returned under the names of `transformers.Trainer`.

        Raises:
            UseCaseError: It returned something else.
        """
        found = self._make()
        if isinstance(found, (tuple, list)) and len(found) in (2, 3):
            keys = ("model", "train_dataset", "data_collator")
            found = dict(zip(keys, found, strict=False))
        if not isinstance(found, Mapping):
            self._refuse(
                f"{self.name}() gave {type(found).__name__}: return (model, dataset, collator), "
                f"or a dict of {', '.join(_KEYS)}"
            )
        parts = dict(found)
        missing = [key for key in _REQUIRED if parts.get(key) is None]
        unknown = [key for key in parts if key not in _KEYS]
        if missing or unknown:
            what = f"lacks {missing[0]!r}" if missing else f"has {unknown[0]!r}"
            self._refuse(
                f"the dict of {self.name}() {what}: there are {', '.join(_KEYS)}, of which "
                f"{' and '.join(_REQUIRED)} are needed"
            )
        batch = parts.get("batch_size")
        if batch is not None and (type(batch) is not int or batch < 1):
            self._refuse(f"batch_size={batch!r}: use a whole number of at least 1")
        check_norm(parts.get("max_gradient_norm"), self._spec)
        for key in ("train_dataset", "eval_dataset"):
            if isinstance(parts.get(key), Mapping):
                self._refuse(
                    f"{key} is a {type(parts[key]).__name__} of {', '.join(map(str, parts[key]))}: "
                    "give one of them"
                )
            if isinstance(parts.get(key), IterableDataset) or not (
                parts.get(key) is None or hasattr(parts[key], "__len__")
            ):
                self._refuse(
                    f"{key} is a {type(parts[key]).__name__}, whose samples have no numbers, so "
                    "that workers and hosts cannot share its batches exactly: give a data set with "
                    "__len__ and __getitem__, such as datasets.Dataset without streaming"
                )
        return parts

    def _data_parts(self) -> dict[str, Any]:
        """Return all but the model, which is let go; never those made for a job's own seed."""
        if self._parts is None:
            with fixed_random_numbers():
                parts = self._read()
            if parts.get("remove_unused_columns", True):
                self._columns = _find_columns(parts["model"])
            self._parts = {key: part for key, part in parts.items() if key != "model"}
        return self._parts

    def model(self) -> nn.Module:
        model = self._read()["model"]
        if not isinstance(model, nn.Module):
            self._refuse(
                f"{self.name}() gave a {type(model).__name__} as model: return a transformers model"
            )
        _switch_off_cache(model)
        if not self._has_labels:
            self._labels, self._has_labels = self._find_labels(model), True
        return model

    def _find_labels(self, model: nn.Module) -> _Labels | None:
        """Find the labels of a cross entropy; ``None`` where the mean is over something else."""
        dataset = self._data_parts()["train_dataset"]
        indices = range(min(_PROBED_SAMPLES, len(dataset)))
        was_training = model.training
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            batch = self.collate([dataset[index] for index in indices])
            recorder = _CrossEntropies()
            model.eval()
            try:
                with recorder:
                    self.step(model, batch)
            finally:
                model.train(was_training)
        if len(recorder.targets) != 1:
            return None
        (target,) = recorder.targets
        for key, value in batch.items():
            if not isinstance(value, Tensor) or not value.dim():
                continue
            if _is_same(target, value):
                return _Labels(key, is_shifted=False)
            if value.dim() > 1 and any(
                _is_same(target, shifted)
                for shifted in (
                    value[..., 1:],
                    functional.pad(value, (0, 1), value=_IGNORED)[..., 1:],
                )
            ):
                return _Labels(key, is_shifted=True)
        return None

    @property
    def default_batch(self) -> int:  # type: ignore[override]
        return int(self._data_parts().get("batch_size") or UseCase.default_batch)

    @property
    def max_gradient_norm(self) -> float | None:  # type: ignore[override]
        return self._data_parts().get("max_gradient_norm")

    def dataset(self, data: Path | None, *, train: bool) -> Dataset[Any]:
        parts = self._data_parts()
        training: Dataset[Any] = parts["train_dataset"]
        if train:
            return training
        validation: Dataset[Any] | None = parts.get("eval_dataset")
        return Subset(training, []) if validation is None else validation

    def collate(self, samples: Sequence[Any]) -> Any:
        collate = self._data_parts().get("data_collator")
        if collate is None:
            from transformers import default_data_collator

            collate = default_data_collator
        batch = collate([self._drop_unused(sample) for sample in samples])
        if not isinstance(batch, Mapping):
            self._refuse(
                f"the collator gave {type(batch).__name__}: return a dict for model(**batch)"
            )
        return batch

    def _drop_unused(self, sample: Any) -> Any:
        """Drop what the model has no argument for, as a Trainer does before it collates."""
        if self._columns is None or not isinstance(sample, dict):
            return sample
        kept = {key: value for key, value in sample.items() if key in self._columns}
        if sample and not kept:
            self._refuse(
                f"forward has no argument for any of the columns {', '.join(map(str, sample))}: "
                'for a collator that needs them return "remove_unused_columns": False'
            )
        return kept

    def step(self, model: Callable[..., Any], batch: Any) -> Tensor:
        output = model(**batch)
        loss = getattr(output, "loss", None)
        if not isinstance(loss, Tensor):
            self._refuse(
                f"model(**batch) gave {type(output).__name__} without a loss, from a batch of "
                f"{', '.join(batch)}: give it labels"
            )
        return loss

    def weight(self, batch: Any) -> float | Tensor:
        labels = self._known_labels()
        return self.size(batch) if labels is None else labels.count(batch)

    def _known_labels(self) -> _Labels | None:
        if not self._has_labels:
            with torch.random.fork_rng(devices=[]):
                self.model()
        return self._labels

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        make = self._data_parts().get("optimizer")
        if make is None:
            return AdamW(parameters, lr=_DEFAULT_LR, weight_decay=0.0)
        if isinstance(make, Optimizer) or not callable(make):
            self._refuse(
                f"optimizer is a {type(make).__name__}: give a function of the parameters, such as "
                "lambda parameters: AdamW(parameters, lr=1e-4)"
            )
        found: Optimizer = make(parameters)
        return found

    def schedule(
        self, optimizer: Optimizer, steps_per_epoch: int, epochs: int
    ) -> LRScheduler | None:
        make = self._data_parts().get("schedule")
        found: LRScheduler | None = make and make(optimizer, steps_per_epoch * epochs)
        return found

    def find_user_methods(self) -> set[str]:
        """Name the methods of the contract that stand on what the user's function returned.

        ``weight`` is one of them where the labels that a loss is a mean over were found.
        """
        parts = self._data_parts()
        found = {"model", "dataset", "step"}
        keys = {"collate": "data_collator", "optimizer": "optimizer", "schedule": "schedule"}
        found |= {name for name, key in keys.items() if parts.get(key) is not None}
        return found if self._known_labels() is None else found | {"weight"}

    def _refuse(self, why: str) -> NoReturn:
        raise UseCaseError(f"use case {self._spec}: {why}")


class _CrossEntropies(TorchFunctionMode):
    """Records the targets of cross entropies that ignore labels of -100."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.cross_entropy:
            target = args[1] if len(args) > 1 else kwargs["target"]
            if kwargs.get("ignore_index", _IGNORED) == _IGNORED and not target.is_floating_point():
                self.targets.append(target)
        return func(*args, **kwargs)


def _find_columns(model: Any) -> frozenset[str] | None:
    """Name the columns of samples that a Trainer keeps; ``None`` where ``forward`` names none.

    Source: ``_set_signature_columns_if_needed`` in transformers/trainer.py. Collators make
    ``labels`` of the two names that are always kept.
    """
    find_base = getattr(model, "get_base_model", None)  # of peft, whose own arguments are any
    forward = getattr(find_base() if callable(find_base) else model, "forward", None)
    if forward is None:
        return None
    found = inspect.signature(forward).parameters.values()
    names = {one.name for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)}
    return frozenset(names | {"label", "label_ids"}) if names else None


def _switch_off_cache(model: nn.Module) -> None:
    """Let a model keep no keys and values for texts that go on: a training never reads them.

    A decoder may have a configuration of its own beside the model's, as T5's does.
    """
    for module in model.modules():
        config = getattr(module, "config", None)
        find_text_part = getattr(config, "get_text_config", lambda: None)
        parts: tuple[Any, Any] = (config, find_text_part())
        for part in parts:
            if hasattr(part, "use_cache"):
                part.use_cache = False


def _is_same(target: Tensor, labels: Tensor) -> bool:
    return target.numel() == labels.numel() and torch.equal(target.flatten(), labels.flatten())

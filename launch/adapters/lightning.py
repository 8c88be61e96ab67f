"""LightningModule as a use case, with the loaders of its own or of a LightningDataModule.

Nothing of Lightning is imported here, and no Trainer is made: the module's own methods are called.
What a Trainer would add to them in a way that changes the result is refused by its name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau
from torch.utils.data import Dataset, Subset, default_collate

from launch.adapters._batch_number import explain_number, takes_number, without_number
from launch.adapters._loader_parts import LoaderParts, is_same_collation, take_apart
from launch.adapters._schedules import MovedSchedule
from launch.data.random_state import fixed_random_numbers
from launch.errors import UseCaseError
from launch.reports import PreparationReporter
from launch.use_cases._adapter import check_norm
from launch.use_cases._base import UseCase
from launch.use_cases._settings import Settings, find_keys, make_arguments

FORM = "lightning:path/to/file.py:Module or lightning:path/to/file.py:Module:DataModule"
MOST_OBJECTS = 2
PACKAGES = ("lightning", "pytorch_lightning")

_HOOKS = (
    *("backward", "configure_gradient_clipping", "lr_scheduler_step", "on_after_backward"),
    *("on_after_batch_transfer", "on_before_backward", "on_before_batch_transfer"),
    *("on_before_optimizer_step", "on_before_zero_grad", "on_train_batch_end"),
    *("on_train_batch_start", "optimizer_step", "optimizer_zero_grad", "transfer_batch_to_device"),
)
"""Methods with which a module, or its data, changes each step of a Trainer."""

_NO_TRAINER = "is not attached to a `Trainer`"
"""What Lightning says at ``self.trainer`` before there is any."""


class _AbsentTrainer:
    """Stands for the Trainer of a module, so that whatever asks for it is found.

    Without one, Lightning gives 0 for ``self.current_epoch`` and ``self.global_step``, with which a
    module would compute something else without a word.
    """

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # of Python's own protocols, such as copying
            raise AttributeError(name)
        raise _TrainerNeededError(name)


class _TrainerNeededError(Exception):
    """A module asks for something of its Trainer."""


class LightningCase(UseCase):
    """A LightningModule; its data are those of a LightningDataModule, or its own loaders'.

    Args:
        objects: The class of the module, or a function that makes one; and that of the data.
        settings: For the constructors, each of which is given the keys that it has.
        spec: The use case's name in messages.
        data: What ``--data`` names, for a constructor with an argument ``data``.

    Attributes:
        origin: The first of the objects.

    Raises:
        UseCaseError: They are something else, or do not have these settings.
    """

    def __init__(
        self, objects: Sequence[Any], settings: Settings, spec: str, data: Path | None
    ) -> None:
        for found in objects:
            if isinstance(found, nn.Module) or not callable(found):
                raise UseCaseError(
                    f"use case {spec}: found a {type(found).__name__}: name a class, or a function "
                    "that makes one, so that each worker makes its own from the seed"
                )
        self.origin: Any = objects[0]
        # Both, because data of equal form may be collated in another way.
        self.name = ":".join(getattr(found, "__name__", "lightning") for found in objects)
        self._spec = spec
        known = [find_keys(found) for found in objects]
        unknown = [pair for pair in settings if not any(pair[0] in keys for keys in known)]
        self._make, *data_makers = [
            partial(
                found,
                **make_arguments(
                    found,
                    (*(pair for pair in settings if pair[0] in keys), *unknown),
                    spec,
                    data,
                ),
            )
            for found, keys in zip(objects, known, strict=True)
        ]
        self._make_data = data_makers[0] if data_makers else None
        self._module: Any = None
        self._data: Any = None
        self._is_set_up = False
        self._parts: dict[bool, LoaderParts | None] = {}
        self._compiled: dict[int, Callable[..., Any]] = {}
        self._takes_number: bool | None = None

    def model(self) -> nn.Module:
        self._module = self._make_module()
        if inspect.isroutine(getattr(self._module, "weight", None)):  # a layer may have that name
            self.weight = lambda batch: self._any_module().weight(batch)  # type: ignore[method-assign]
        self.max_gradient_norm = getattr(self._module, "max_gradient_norm", None)
        check_norm(self.max_gradient_norm, self._spec)
        return self._module  # type: ignore[no-any-return]

    def _make_module(self) -> Any:
        module: Any = self._make()
        self._check_module(module)
        for part in module.modules():
            if hasattr(part, "automatic_optimization"):  # one more LightningModule
                part.log = part.log_dict = _ignore
        module.trainer = _AbsentTrainer()  # which reaches those inside it
        with self._refusing_trainer("setup"):
            module.setup("fit")
            module.configure_model()
        return module

    def _check_module(self, module: Any) -> None:
        kind = type(module).__name__
        needed = ("training_step", "configure_optimizers", "automatic_optimization")
        if not isinstance(module, nn.Module) or not all(hasattr(module, one) for one in needed):
            self._refuse(f"{kind} is no LightningModule: name one")
        if not module.automatic_optimization:
            self._refuse(
                f"{kind} has automatic_optimization=False, and ddlplan makes the optimizer's "
                "steps by itself: return the loss from training_step"
            )
        self._check_hooks(module)

    def _check_hooks(self, owner: Any) -> None:
        for name in _HOOKS:
            if _is_overridden(owner, name):
                self._refuse(
                    f"{type(owner).__name__} has {name}(), which only a Trainer calls: remove it, "
                    "or do the same in training_step or configure_optimizers"
                )

    def _any_module(self) -> Any:
        """Return the last module that was made; one more where there is none."""
        if self._module is None:
            with torch.random.fork_rng(devices=[]):
                self.model()
        return self._module

    def prepare(self, data: Path | None, report: PreparationReporter) -> None:
        with self._refusing_trainer("prepare_data"):
            self._source(is_set_up=False).prepare_data()

    def _source(self, *, is_set_up: bool = True) -> Any:
        """Return the object that has the loaders."""
        if self._data is None and self._make_data is not None:
            self._data = self._make_data()
            self._check_hooks(self._data)
        if self._data is None:
            module = self._any_module()
            if not _is_overridden(module, "setup"):
                return module
            with fixed_random_numbers():
                self._data = self._make_module()  # whose setup may split the samples
        elif is_set_up and not self._is_set_up and self._make_data is not None:
            with fixed_random_numbers(), self._refusing_trainer("setup"):
                self._data.setup("fit")
            self._is_set_up = True
        return self._data

    def _loader_parts(self, *, train: bool) -> LoaderParts | None:
        """Return the parts of a loader; ``None`` where there is none for validation."""
        if train not in self._parts:
            self._parts[train] = self._take_apart(train=train)
        return self._parts[train]

    def _take_apart(self, *, train: bool) -> LoaderParts | None:
        source, name = self._source(), "train_dataloader" if train else "val_dataloader"
        origin = f"use case {self._spec}: {type(source).__name__}.{name}()"
        if not _is_overridden(source, name):
            if not train:
                return None
            self._refuse(
                f"{type(source).__name__} has no train_dataloader(): add one, or name a "
                "LightningDataModule behind the module, as lightning:path.py:Module:DataModule"
            )
        with fixed_random_numbers(), self._refusing_trainer(name):
            found = getattr(source, name)()
        if not train and (found is None or found == []):
            return None
        parts = take_apart(found, origin)
        if not train and not is_same_collation(parts.collate, self._training_parts().collate):
            self._refuse(
                f"the loaders of {type(source).__name__} for training and validation have "
                "different collate_fn: give both the same"
            )
        return parts

    def _training_parts(self) -> LoaderParts:
        parts = self._loader_parts(train=True)
        assert parts is not None
        return parts

    def dataset(self, data: Path | None, *, train: bool) -> Dataset[Any]:
        parts = self._loader_parts(train=train)
        if parts is None:
            return Subset(self._training_parts().dataset, [])
        return parts.dataset

    @property
    def default_batch(self) -> int:  # type: ignore[override]
        return self._training_parts().batch_size

    def collate(self, samples: Sequence[Any]) -> Any:
        return self._training_parts().collate(samples)

    def step(self, model: Callable[..., Any], batch: Any) -> Tensor:
        with self._refusing_trainer("training_step"):
            found = self._training_step(model)(batch, 0)
        loss = found.get("loss") if isinstance(found, Mapping) else found
        if not isinstance(loss, Tensor):
            self._refuse(
                f"training_step gave {type(found).__name__}: return the loss, or a dict with 'loss'"
            )
        return loss

    def _training_step(self, model: Any) -> Callable[[Any, int], Any]:
        """Return the method that computes the loss, compiled where the model is."""
        module = getattr(model, "_orig_mod", model)
        if self._takes_number is None:  # asked once: a step is timed
            self._takes_number = takes_number(module.training_step)
        whole = module.training_step if self._takes_number else partial(without_number, module)
        if module is model:
            return whole
        if id(module) not in self._compiled:
            self._compiled[id(module)] = torch.compile(whole, dynamic=False)
        return self._compiled[id(module)]

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        optimizer, _ = self._configure(list(parameters))
        if hasattr(optimizer.step, "_wrapped_by_lr_sched"):  # by a schedule that is left out here
            del optimizer.step
        return optimizer

    def _configure(
        self, parameters: Sequence[nn.Parameter] | None
    ) -> tuple[Optimizer, Mapping[str, Any] | None]:
        """Return the optimizer of some parameters, and how Lightning describes its schedule."""
        module = self._any_module()
        with (
            _parameters_replaced(module, parameters),
            self._refusing_trainer("configure_optimizers"),
        ):
            found = module.configure_optimizers()
        return self._read_configuration(found)

    def _read_configuration(self, found: Any) -> tuple[Optimizer, Mapping[str, Any] | None]:
        schedules: Any = []
        if isinstance(found, Mapping):
            found, schedules = found.get("optimizer"), found.get("lr_scheduler", [])
        elif isinstance(found, (tuple, list)) and len(found) == 2 and _is_list(found[0]):
            found, schedules = found
        optimizers = list(found) if _is_list(found) else [found]
        if len(optimizers) != 1:
            self._refuse(
                f"configure_optimizers gave {len(optimizers)} optimizers: return one, with "
                "parameter groups"
            )
        optimizer: Any = optimizers[0]
        if isinstance(optimizer, Mapping):
            optimizer, schedules = optimizer.get("optimizer"), optimizer.get("lr_scheduler", [])
        if not isinstance(optimizer, Optimizer):
            self._refuse(
                f"configure_optimizers gave {type(optimizer).__name__}: return an optimizer"
            )
        if not _is_list(schedules):
            schedules = [schedules]
        if len(schedules) > 1:
            self._refuse(
                f"configure_optimizers gave {len(schedules)} schedules: return one, such as a "
                "SequentialLR or ChainedScheduler"
            )
        return optimizer, self._read_schedule(schedules[0]) if schedules else None

    def _read_schedule(self, found: Any) -> Mapping[str, Any]:
        described = dict(found) if isinstance(found, Mapping) else {"scheduler": found}
        schedule = described.get("scheduler")
        if isinstance(schedule, ReduceLROnPlateau) or not isinstance(schedule, LRScheduler):
            self._refuse(
                f"configure_optimizers gave the schedule {type(schedule).__name__}: return one "
                "whose step() needs no metric"
            )
        return described

    def schedule(
        self, optimizer: Optimizer, steps_per_epoch: int, epochs: int
    ) -> LRScheduler | None:
        _, described = self._configure(None)
        if described is None:
            return None
        is_by_step = described.get("interval", "epoch") == "step"
        every = (1 if is_by_step else steps_per_epoch) * int(described.get("frequency", 1))
        return MovedSchedule(optimizer, described["scheduler"], every)

    def find_user_methods(self) -> set[str]:
        """Name the methods of the contract that stand on a method of the user's."""
        found = {"model", "dataset", "optimizer", "step"}
        optional = {
            "weight": inspect.isroutine(getattr(self._any_module(), "weight", None)),
            "collate": self._training_parts().collate is not default_collate,
            "schedule": self._configure(None)[1] is not None,
            "prepare": _is_overridden(self._source(), "prepare_data"),
        }
        return found | {name for name, is_there in optional.items() if is_there}

    def find_warnings(self) -> list[str]:
        """Say what a module reads that is not here as it is in a Trainer."""
        return list(filter(None, [explain_number(self._any_module())]))

    @contextmanager
    def _refusing_trainer(self, where: str) -> Iterator[None]:
        try:
            yield
        except (_TrainerNeededError, RuntimeError) as error:
            wanted = f".{error}" if isinstance(error, _TrainerNeededError) else ""
            if not wanted and _NO_TRAINER not in str(error):
                raise
            raise UseCaseError(
                f"use case {self._spec}: self.trainer{wanted} is used in {where}(), and there is "
                "no Trainer: give the constructor what is needed"
            ).with_traceback(error.__traceback__) from error

    def _refuse(self, why: str) -> NoReturn:
        raise UseCaseError(f"use case {self._spec}: {why}")


def _ignore(*_: Any, **__: Any) -> None:
    """Stand for ``self.log`` and ``self.log_dict``."""


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _is_overridden(owner: object, name: str) -> bool:
    """Tell whether a method is the user's rather than Lightning's placeholder."""
    code = inspect.unwrap(getattr(owner, name, None) or _ignore)
    return code is not _ignore and getattr(code, "__module__", "").partition(".")[0] not in (
        "lightning",
        "pytorch_lightning",
    )


@contextmanager
def _parameters_replaced(
    module: nn.Module, parameters: Sequence[nn.Parameter] | None
) -> Iterator[None]:
    """Put others in the place of a module's parameters, for an optimizer to be made of them.

    ``configure_optimizers`` takes the parameters from the module. ddlplan's optimizers are of
    another copy of the model, or of small tensors that stand for it.
    """
    own = list(module.parameters())
    if parameters is not None and len(parameters) != len(own):
        own = [parameter for parameter in own if parameter.requires_grad]
    replaced = dict(zip(map(id, own), parameters or own, strict=True))
    tables = [part._parameters for part in module.modules()]
    before = [dict(table) for table in tables]
    try:
        for table in tables:
            for name, parameter in table.items():
                if parameter is not None:
                    table[name] = replaced.get(id(parameter), parameter)
        yield
    finally:
        for table, values in zip(tables, before, strict=True):
            table.update(values)

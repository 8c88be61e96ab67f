"""Patches: changes of a script that its user has asked for, made in the processes that train.

Loaded by the shim, by path, and only where a plan has patches. Standard library only, for Pythons
from 3.8 on. Nothing of torch is imported here: the shim calls `actions` when torch is there.
"""

from __future__ import annotations

import functools
import inspect
import random
import sys
import types
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:  # so that typing is not loaded in the user's process
    from typing import Any

WORKERS, PINNING, PERSISTENCE = "loader_workers", "pin_memory", "persistent_workers"
CHANNELS_LAST, AUTOCAST, COMPILE = "channels_last", "autocast", "compile"
_OF_LOADERS = frozenset((WORKERS, PINNING, PERSISTENCE))
_OF_MODELS = frozenset((CHANNELS_LAST, AUTOCAST, COMPILE))
_NEEDS_WORKERS = {"prefetch_factor": None, "timeout": 0, "multiprocessing_context": None}
"""Arguments of a data loader that are errors without workers, with what they are then."""

_WATCHED_STEPS = 2
"""Steps of optimizers after which a module that was not called is no model of the training."""

applied: set[str] = set()
"""Names of the patches that have changed something in this process."""


def actions(patches: dict[str, Any], seed: int | None = None) -> dict[str, list[Any]]:
    """Give by module what is to be done once it is imported.

    Args:
        patches: Changes of the script.
        seed: Of the random numbers of a script that sets none itself; ``None``: they are its own.
    """
    found: dict[str, list[Any]] = {}
    if seed is not None:
        random.seed(seed)
        found["numpy.random"] = [lambda module: module.seed(seed)]
        found["torch"] = [lambda module: module.manual_seed(seed)]
    if _OF_LOADERS & set(patches):
        found["torch.utils.data.dataloader"] = [functools.partial(_patch_loaders, patches)]
    if _OF_MODELS & set(patches):
        models = _Models(patches)
        found["torch.nn.modules.module"] = [models.watch_calls]
        found["torch.optim.optimizer"] = [models.watch_steps]
    return found


def _patch_loaders(patches: dict[str, Any], module: Any) -> None:
    """Change the arguments of every data loader that is made from now on."""
    kind = module.DataLoader
    make = kind.__init__
    signature = inspect.signature(make)

    @functools.wraps(make)
    def make_patched(self: Any, *args: Any, **kwargs: Any) -> None:
        bound = signature.bind(self, *args, **kwargs)
        given = bound.arguments
        if WORKERS in patches and _may_have_workers(module, given["dataset"]):
            given["num_workers"] = patches[WORKERS]
            applied.add(WORKERS)
        if PINNING in patches:
            given["pin_memory"] = patches[PINNING]
            applied.add(PINNING)
        if PERSISTENCE in patches and given.get("num_workers", 0) > 0:
            given["persistent_workers"] = patches[PERSISTENCE]
            applied.add(PERSISTENCE)
        if not given.get("num_workers", 0):
            given.update({name: value for name, value in _NEEDS_WORKERS.items() if name in given})
            given["persistent_workers"] = False
        make(*bound.args, **bound.kwargs)

    kind.__init__ = make_patched


def _may_have_workers(module: Any, dataset: Any) -> bool:
    """Whether workers change when samples are read, and not which.

    Each worker reads all of an iterable dataset that does not ask which worker it is in.
    """
    multiprocessing = sys.modules.get("multiprocessing")
    is_worker = multiprocessing is not None and multiprocessing.current_process().daemon
    return not is_worker and not isinstance(dataset, module.IterableDataset)


class _Models:
    """Patches each model of a training when it is called for the first time.

    A model is the outermost module of a call that has parameters to train.
    """

    def __init__(self, patches: dict[str, Any]) -> None:
        self.patches = patches
        self.known: Any = weakref.WeakSet()
        self.steps = 0
        self.stop: Any = lambda: None

    def watch_calls(self, module: Any) -> None:
        """Look at calls of modules until all models are known."""
        kind = module.Module
        call = kind.__call__

        @functools.wraps(call)
        def call_and_patch(model: Any, *args: Any, **kwargs: Any) -> Any:
            # Modules inside of this one are called as ever: torch.compile would trace what is here.
            kind.__call__ = call
            try:
                if model not in self.known:
                    self.patch(model)
                return call(model, *args, **kwargs)
            finally:
                if self.steps < _WATCHED_STEPS:
                    kind.__call__ = call_and_patch

        def stop() -> None:
            kind.__call__ = call

        self.stop = stop
        kind.__call__ = call_and_patch

    def watch_steps(self, module: Any) -> None:
        """Count steps of optimizers: after some, calls are looked at no more."""

        def count(*_: Any) -> None:
            self.steps += 1
            if self.steps == _WATCHED_STEPS:
                self.stop()

        hook: Any = count
        hook._torchdynamo_disable = True
        module.register_optimizer_step_post_hook(hook)

    def patch(self, model: Any) -> None:
        """Patch a model, in place: optimizers have its parameters already."""
        parameters = [p for p in model.parameters() if p.requires_grad]
        if not parameters:
            return
        # Checkpointed parts are called again, alone, in the backward pass.
        self.known.update(model.modules())
        torch = sys.modules["torch"]
        if CHANNELS_LAST in self.patches and any(p.dim() == 4 for p in parameters):
            for tensor in (*model.parameters(), *model.buffers()):
                if tensor.dim() == 4:  # `model.to` fails where there are others of five
                    tensor.data = tensor.data.to(memory_format=torch.channels_last)
            model.register_forward_pre_hook(_order_inputs, with_kwargs=True)
            applied.add(CHANNELS_LAST)
        if AUTOCAST in self.patches:
            model._ddlplan_forward = model.forward
            # A bound method, because a deep copy binds it to the copied model.
            model.forward = types.MethodType(_forward_in_autocast, model)
            applied.add(AUTOCAST)
        if COMPILE in self.patches:
            model.compile()
            applied.add(COMPILE)


def _order_inputs(_: Any, args: Any, kwargs: Any) -> Any:
    return tuple(map(_order, args)), {name: _order(value) for name, value in kwargs.items()}


def _order(value: Any) -> Any:
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor) and value.dim() == 4:
        return value.contiguous(memory_format=torch.channels_last)
    return value


def _forward_in_autocast(model: Any, *args: Any, **kwargs: Any) -> Any:
    torch = sys.modules["torch"]
    device = next(model.parameters()).device.type
    with torch.autocast(device, torch.bfloat16):
        made = model._ddlplan_forward(*args, **kwargs)
    return _as_float32(made)  # so that a loss outside of the model is as exact as before


def _as_float32(value: Any) -> Any:
    torch = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype == torch.bfloat16 else value
    if type(value) in (list, tuple):
        return type(value)(map(_as_float32, value))
    if type(value) is dict:
        return {key: _as_float32(item) for key, item in value.items()}
    return value

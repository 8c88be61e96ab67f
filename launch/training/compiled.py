"""Model run through ``torch.compile``, in the shapes of a full batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

from launch.errors import CompilerError
from launch.system.cache import cache_folder, make_folder


def compile_model(model: nn.Module, *, as_module: bool = False) -> Callable[..., Any]:
    """Return a function that computes the same as ``model``, compiled at its first calls.

    The model itself stays as it is, for validation and the rest of an epoch: for each of their
    shapes the compiler would run for many seconds.

    Args:
        model: The model.
        as_module: Whether to return a module with the attributes of the model, for a caller that
            needs more than its first argument.
    """
    if as_module:
        return torch.compile(model, dynamic=False)

    def forward(inputs: Any) -> Any:
        return model(inputs)

    return torch.compile(forward, dynamic=False)


def set_compiler_cache() -> None:
    """Make the compiler store its kernels in ddlplan's cache.

    Its default is a folder in /tmp with a name that another user could have taken before, whose
    kernels it would load.
    """
    folder = make_folder(cache_folder() / "compiled")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


@contextmanager
def translate_compiler_errors() -> Iterator[None]:
    """Turn the compiler's errors into one line.

    Raises:
        CompilerError: It failed.
    """
    try:
        yield
    except (TorchDynamoException, CppCompileError, InvalidCxxCompiler) as error:
        reason = _main_line(_root_cause(error))
        raise CompilerError(
            f"compile=True and a model that torch.compile fails at ({reason}): use compile=False"
        ) from error


def _root_cause(error: BaseException) -> BaseException:
    while deeper := getattr(error, "inner_exception", None) or error.__cause__:
        error = deeper
    return error


def _main_line(error: BaseException) -> str:
    """Return the first error of a C++ compiler in a message, else the message's beginning."""
    complaints = [line for line in str(error).splitlines() if "error: " in line]
    return " ".join((complaints or [str(error)])[0].split())[:400]

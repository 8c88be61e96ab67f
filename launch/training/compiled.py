"""How does a model run through ``torch.compile``? In the shapes of a full batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import CppCompileError, InvalidCxxCompiler

from launch.cache import cache_folder, make_folder
from launch.errors import CompilerError


def compile_model(model: nn.Module) -> Callable[[Any], Any]:
    """Give a function that computes the same as ``model``, compiled at its first calls.

    Apart from the model, which stays as it is: it validates, and takes the rest of an epoch, in
    shapes of their own, for each of which the compiler would be run for many seconds.
    """

    def forward(inputs: Any) -> Any:
        return model(inputs)

    return torch.compile(forward, dynamic=False)


def settle_compiler() -> None:
    """Have the compiler keep its kernels in ddlplan's cache.

    By itself it takes a folder in /tmp with a name that another user could have taken before, and
    would load what that one left there.
    """
    folder = make_folder(cache_folder() / "compiled")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(folder))


@contextmanager
def explaining_compiler() -> Iterator[None]:
    """Say in a line what the compiler failed at.

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
    """Pick what a C++ compiler complained of, else the beginning, from a message of many lines."""
    complaints = [line for line in str(error).splitlines() if "error: " in line]
    return " ".join((complaints or [str(error)])[0].split())[:400]

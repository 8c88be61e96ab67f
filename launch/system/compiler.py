"""Requirements of ``torch.compile``: a C++ compiler, Python's headers, Triton for GPUs."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path


def find_compiler(environment: Mapping[str, str] = os.environ) -> str | None:
    """Find the C++ compiler that torch would call, ``None`` where it could not compile a kernel.

    Both the kernels of a CPU and what launches those of a GPU are extensions of Python.

    Source: ``cpp.cxx`` in torch/_inductor/config.py.
    """
    name = shlex.split(environment.get("CXX") or "g++")[0]
    headers = Path(sysconfig.get_path("include"), "Python.h")
    return shutil.which(name, path=environment.get("PATH")) if headers.exists() else None


def has_triton() -> bool:
    """Whether the compiler of GPU kernels is installed; it is not loaded by this."""
    return find_spec("triton") is not None

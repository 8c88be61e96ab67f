"""Command that installs a package for the Python that runs."""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec


def install_command(requirement: str) -> str:
    """Give the command for what pip takes, such as ``ddlplan[onnx]``, quoted for a shell.

    It names this Python: the user's ``pip`` may be another's. An environment that uv made has no
    pip, and uv installs into it.
    """
    installer = [sys.executable, "-m", "pip", "install"]
    if find_spec("pip") is None:
        installer = ["uv", "pip", "install", "--python", sys.executable]
    return shlex.join([*installer, requirement])

"""The command that installs a package for the Python that runs."""

from __future__ import annotations

import shlex
import sys

import pytest

from launch.packages import install_command as module
from launch.packages.install_command import install_command


@pytest.mark.parametrize("has_pip", [True, False])
def test_command_is_for_this_python_whose_environment_may_have_no_pip(monkeypatch, has_pip):
    """``pip install`` went to whatever environment the user's pip is of, or there was none."""
    monkeypatch.setattr(sys, "executable", "/my lab/.venv/bin/python")
    monkeypatch.setattr(module, "find_spec", lambda name: name if has_pip else None)
    command = install_command("ddlplan[onnx]")
    python = "'/my lab/.venv/bin/python'"
    if has_pip:
        assert command == f"{python} -m pip install 'ddlplan[onnx]'"
    else:
        assert command == f"uv pip install --python {python} 'ddlplan[onnx]'"
    assert shlex.split(command)[-1] == "ddlplan[onnx]"

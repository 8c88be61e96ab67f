"""Exports of a script's plan say which Python they take."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sample_plan

from launch.plan import Plan
from planner.exports.formats import export_text
from planner.scripts.naming import STRATEGY, script_name


@pytest.mark.parametrize("text_format", ["shell", "python", "sbatch"])
def test_python_without_a_folder_is_said_to_be_that_of_the_environment_to_activate(text_format):
    """A job took the Python of another environment than the one that was tuned."""
    line = "# python is that of PATH: activate the environment that it was tuned in.\n"
    for python, is_said in (("python", True), ("/opt/torch/bin/python", False)):
        name = script_name(["env", "LR=1", python, "train.py", "--with", "accelerate"])
        stored = replace(
            sample_plan.FOUND, use_case=name, plan=Plan(strategy=STRATEGY, node_batch=8)
        )
        text = export_text(stored, text_format)
        assert (line in text) == (" is that of PATH" in text) == is_said

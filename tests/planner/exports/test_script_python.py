"""Exports of a script's plan say which Python they take."""

from __future__ import annotations

import ast
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


def test_words_of_a_script_are_the_same_in_python():
    """The story: a name with an emoji became two halves of one, which no program can be given."""
    words = ["python", "smile \U0001f600.py", "it's"]
    plan = Plan(strategy=STRATEGY, node_batch=8)
    stored = replace(sample_plan.FOUND, use_case=script_name(words), plan=plan)
    assigned = {
        getattr(node.targets[0], "id", ""): node.value
        for node in ast.parse(export_text(stored, "python")).body
        if isinstance(node, ast.Assign)
    }
    assert ast.literal_eval(assigned["COMMAND"]) == words

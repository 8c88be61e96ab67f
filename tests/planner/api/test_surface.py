"""Surface of the Python API: what it lists, what it documents, and what it does not import."""

from __future__ import annotations

import doctest
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from launch.use_cases import _locations
from planner import api
from planner.api import jobs, machines, plans, probing, studies, sweeps, together, trainings

ROOT = Path(__file__).parents[3]
PARTS = (jobs, machines, plans, studies, sweeps, together, trainings)


def functions():
    found = {name: getattr(api, name) for name in api.__all__}
    of_parts = {
        f"{part.__name__.rpartition('.')[2]}.{name}": each
        for part in PARTS
        for name, each in vars(part).items()
        if name[0] != "_" and getattr(each, "__module__", None) == part.__name__
    }
    return {name: each for name, each in (found | of_parts).items() if inspect.isfunction(each)}


def test_every_name_that_is_listed_is_there_and_says_what_it_is():
    assert sorted(api.__all__) == list(api.__all__) == dir(api)
    assert [name for name in api.__all__ if not inspect.getdoc(getattr(api, name))] == []


def test_no_other_name_is_there():
    with pytest.raises(AttributeError, match="no attribute 'Tuner'"):
        _ = api.Tuner


@pytest.mark.parametrize("name", functions())
def test_every_function_has_an_example_and_complete_types(name):
    function = functions()[name]
    assert "Example:" in inspect.getdoc(function)
    signature = inspect.signature(function)
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(p.annotation is not p.empty for p in signature.parameters.values())


def test_every_function_is_on_the_page_of_the_api():
    page = (ROOT / "docs/api.md").read_text()
    assert [name for name in functions() if f"{name}(" not in page] == []


@pytest.mark.parametrize("module", [_locations, probing])
def test_examples_hold(module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(import_module(module.__name__))
    assert result.attempted > 0
    assert result.failed == 0


def test_import_of_the_api_loads_nothing_heavy():
    program = """
import sys
import planner.api
assert not {"torch", "optuna", "sqlalchemy", "msgspec", "numpy"} & set(sys.modules)
assert not hasattr(planner.api, "scripts"), "nothing in it is on the page"
from planner.api import LaunchRequest, Listener, TuneRequest, launch, plans, probe, tune
assert not {"torch", "mpi4py", "rich", "typer"} & set(sys.modules), "torch or a display"
"""
    subprocess.run([sys.executable, "-c", program], check=True)

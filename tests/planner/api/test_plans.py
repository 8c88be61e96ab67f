"""Plans by the Python API: that of a use case which lies elsewhere now."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from planner.api import TuneRequest, make_workload, plans, tune
from planner.errors import NoPlanError

CASES = Path(__file__).parents[1] / "steady_cases.py"
FED = """
from steady_cases import Steady

class Fed(Steady):
    name = "fed"
    def dataset(self, data, *, train):
        assert (data / "samples").exists()
        return super().dataset(data, train=train)
"""


@pytest.mark.long
def test_best_plan_of_a_copy_that_needs_its_data_is_found_with_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    (data / "samples").touch()
    fed = {name: tmp_path / name / "fed.py" for name in ("here", "elsewhere")}
    for file in fed.values():
        file.parent.mkdir()
        shutil.copy(CASES, file.parent)
        file.write_text(FED)
    here = make_workload(f"{fed['here']}:Fed", data=data)
    found = tune(TuneRequest(workload=here, budget_s=60, trials=1))
    copy = f"{fed['elsewhere']}:Fed"
    assert plans.find_best(copy, data=data).stored.id == found.plan.id
    with pytest.raises(NoPlanError, match="no plan for"):
        plans.find_best(copy)

"""Plans by the Python API: that of a use case which lies elsewhere now."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from sample_plan import FOUND

from planner.api import make_workload, plans
from planner.errors import NoPlanError
from planner.plans.software import current_software
from planner.store import Store
from planner.trials.runner import TrialRunner
from probes.node import probe

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
def test_best_plan_of_a_copy_that_needs_its_data_is_found_with_them(
    tmp_path, monkeypatch, shared_servers
):
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
    node = probe(quick=True)
    known = {"node": node.node, "fingerprint": node.fingerprint(), "use_case": here.use_case}
    known["use_case_digest"] = TrialRunner(here, node, shared_servers).describe().digest
    with Store.open("planner.db") as store:
        plan_id = store.plans.save(replace(FOUND, software=current_software(), **known))
    copy = f"{fed['elsewhere']}:Fed"
    assert plans.find_best(copy, data=data).stored.id == plan_id
    with pytest.raises(NoPlanError, match="no plan for"):
        plans.find_best(copy)

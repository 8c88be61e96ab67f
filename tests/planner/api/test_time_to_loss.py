"""A search by the time to a loss on this machine, and the training that follows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from launch.errors import InvalidPlanError
from launch.hosts.host_line import Host
from planner.api import (
    HostAccess,
    Hosts,
    LaunchRequest,
    TuneRequest,
    launch,
    make_workload,
    plans,
    tune,
)

CASE = f"{Path(__file__).parents[2] / 'launch/cases/noise_cases.py'}:Learning"
HERE = Hosts.this_machine(HostAccess(allow_root=True))


@pytest.fixture
def request_(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return TuneRequest(
        workload=make_workload(CASE),
        budget_s=150,
        trials=2,
        objective="time-to-loss",
        lr_scaling="sqrt",
        target_loss=0.95,
    )


@pytest.mark.long
@pytest.mark.usefixtures("shared_servers")
def test_plan_has_its_objective_and_trains_with_its_learning_rate(
    request_, probed_database, tmp_path
):
    shutil.copy(probed_database, tmp_path / "planner.db")
    found = tune(request_).plan
    assert found.objective.name == "time-to-loss"
    assert found.objective.noise_low < found.objective.noise_scale < found.objective.noise_high
    assert (found.objective.base_batch, found.plan.lr_scaling) == (16, "sqrt")
    assert plans.get(found.id).stored == found

    done = launch(LaunchRequest(workload=request_.workload, epochs=2), hosts=HERE)
    (node,) = done.prepared.job.nodes
    assert node.plan == found.plan
    rate = 0.05 * (found.plan.node_batch / 16) ** 0.5
    assert done.outcome.epochs[0].learning_rates == (pytest.approx(rate),)


def test_several_hosts_are_refused(request_):
    machines = (Host(name="n1", line=1), Host(name="n2", line=2))
    there = replace(HERE, machines=machines, is_local=False)
    with pytest.raises(InvalidPlanError, match="time-to-loss and 2 hosts"):
        tune(request_, hosts=there)

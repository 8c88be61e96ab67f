"""What `launch` says before it starts."""

from __future__ import annotations

from dataclasses import replace

from sample_plan import FOUND

from launch.plan import Plan
from launch.reports import Noted
from planner.api import LaunchRequest, make_workload, prepare_launch
from planner.plans.software import current_software
from planner.store import Store
from probes.hardware import Gpu
from probes.node import probe


def test_launch_says_which_gpus_a_plan_takes_where_they_differ_in_kind(tmp_path, monkeypatch):
    """Which kind a number stood for is not stored: another CUDA_VISIBLE_DEVICES changes it."""
    monkeypatch.chdir(tmp_path)
    slow = Gpu(nvml_index=0, cuda_index=1, name="T4", uuid="GPU-0")
    fast = Gpu(nvml_index=1, cuda_index=0, name="A100", uuid="GPU-1")
    node = replace(probe(quick=True), gpus=(slow, fast))
    monkeypatch.setattr("planner.api.launching.probe_for_plans", lambda: node)
    found = replace(
        FOUND,
        plan=Plan(strategy="gpu_data", node_batch=128, devices=("cuda:0",)),
        node=node.node,
        fingerprint=node.fingerprint(),
        software=current_software(),
    )
    with Store.open("planner.db") as store:
        store.plans.save(found)
    said = []
    prepared = prepare_launch(
        LaunchRequest(workload=make_workload("simplebig")),
        listener=lambda report, _host=None: said.append(report),
    )
    assert prepared.job.nodes[0].gpu_uuids == ("GPU-1",)
    (line,) = [report.message for report in said if isinstance(report, Noted)]
    assert "has GPUs of different kinds: the plan trains on cuda:0 (A100), and " in line

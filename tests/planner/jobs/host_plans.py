"""Stored plans of two hosts, a fast and a slow one, and the network between them."""

from __future__ import annotations

from dataclasses import replace

from sample_plan import NOON, SOFTWARE

from launch.plan import Plan
from launch.workload import Workload
from planner.cluster.links import HostLink, MeasuredLinks
from planner.cluster.node_choice import choose_nodes
from planner.cluster.sync_cost import SyncCostModel
from planner.jobs.making import LaunchRequest
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.plans.stored_plan import StoredPlan
from probes.hardware import CoreLimit, Cpu, Hardware, Memory
from probes.timing import Interval

REQUEST = LaunchRequest(workload=Workload(use_case="simplebig"))
REMEDY = "ddlplan tune --use-case simplebig --hosts hosts.txt"
GIB = 2**30


def hardware(name: str, cores: int = 2) -> Hardware:
    cpu = Cpu(
        architecture="x86_64",
        logical_cores=cores,
        usable_cores=cores,
        core_ids=tuple(range(cores)),
        limits=(CoreLimit(source="test", cores=cores),),
    )
    return Hardware(node=name, cpu=cpu, memory=Memory(total_bytes=2**34, usable_bytes=2**34))


def point(batch, peak):
    return StepPoint(node_batch=batch, step_s=batch / 40, peak_memory_bytes=peak)


def plan(node: Hardware, samples_per_s: float = 40.0, **changes) -> StoredPlan:
    step_s = 128 / samples_per_s
    whole = StoredPlan(
        use_case="simplebig",
        node=node.node,
        fingerprint=node.fingerprint(),
        plan=Plan(strategy="threads", node_batch=128, threads_per_process=node.cpu.usable_cores),
        throughput_samples_per_s=Interval(
            median=samples_per_s, low=samples_per_s, high=samples_per_s, count=9
        ),
        speedup=None,
        baseline=None,
        peak_memory_bytes=2 * GIB,
        step_time=steps_from_points(
            [
                StepPoint(node_batch=32, step_s=step_s / 4, peak_memory_bytes=GIB),
                StepPoint(node_batch=128, step_s=step_s, peak_memory_bytes=2 * GIB),
            ]
        ),
        gradient_bytes=228_000_000,
        begins_early=True,
        created_at=NOON,
        software=SOFTWARE,
    )
    return replace(whole, **changes)


FAST, SLOW = hardware("fast", cores=4), hardware("slow", cores=1)
NODES = {"n1": FAST, "n2": SLOW}


def exchange(bytes_per_s: float = 1e9) -> SyncCostModel:
    link = HostLink(first="n1", second="n2", latency_s=1e-4, bytes_per_s=bytes_per_s)
    return SyncCostModel(
        MeasuredLinks(hosts=("n1", "n2"), fingerprints=("", ""), measured_at=NOON, links=(link,))
    )


def verdict_of(plans, network=None, **settings):
    return choose_nodes([p.cluster_node() for p in plans], network, 228_000_000, **settings)

"""Imagined machines for tests of the search: every setting counts by itself."""

from __future__ import annotations

import math
from dataclasses import replace

from launch.case_facts import CaseFacts
from launch.plan import Plan
from planner.search.plan_search import PlanSearch
from planner.trials.result import Outcome, Role, TrialResult
from probes.hardware import CoreLimit, Cpu, Gpu, Hardware, Memory
from probes.timing import Measurement

PLAIN_CASE = CaseFacts(
    default_batch=32,
    train_samples=5418,
    validation_samples=585,
    parameter_count=57_000_000,
    parameter_bytes=228_000_000,
    max_stages=8,
    digest="sha256:1",
)
CASE = replace(
    PLAIN_CASE,
    batch_choices=(32, 64, 128, 256),
    inputs=("files", "cache"),
    pixel_bytes=900_000_000,
    allocators=("default", "retain", "jemalloc"),
    has_fused_optimizer=True,
    can_compile=True,
)


def node_of(cores: int, gpus: int = 0, memory_bytes: int = 2**35) -> Hardware:
    cpu = Cpu(
        architecture="x86_64",
        logical_cores=cores,
        usable_cores=cores,
        core_ids=tuple(range(cores)),
        limits=(CoreLimit(source="test", cores=cores),),
    )
    memory = Memory(total_bytes=memory_bytes, usable_bytes=memory_bytes)
    found = tuple(
        Gpu(nvml_index=i, cuda_index=i, name="imagined", uuid=f"GPU-{i}", free_bytes=2**34)
        for i in range(gpus)
    )
    return Hardware(node="n1", cpu=cpu, memory=memory, gpus=found)


class Machine:
    """Takes a known time for each sample; every setting counts by itself.

    Args:
        parts: Processes or replicas that suit it best.
        fixed: Share of the time of a step of 32 samples that does not grow with the batch.
        factors: What a setting makes of the time, by its value.
    """

    def __init__(self, parts: int, fixed: float, **factors: float) -> None:
        self.parts = parts
        self.fixed = fixed
        self.factors = {"cache": 0.85, "fused": 0.97, "channels_last": 0.9, **factors}

    def sample_s(self, plan: Plan) -> float:
        parts = max(plan.processes, plan.replicas)
        time_s = 0.001 * (1 + 0.06 * abs(math.log2(parts / self.parts))) / plan.threads
        time_s *= 1 + self.fixed * 32 / plan.node_batch
        time_s *= 1 + 0.03 * (plan.micro_batches - 1)
        time_s *= 1.5 if plan.strategy in ("pipeline", "hybrid") else 1.0
        said = (plan.input, plan.allocator, plan.memory_format, plan.precision)
        on = {"fused": plan.fused_optimizer, "compiled": plan.compile, "l": plan.loader_workers > 0}
        for name in (*said, *(name for name, holds in on.items() if holds)):
            time_s *= self.factors.get(name, 1.0)
        return time_s

    def result(self, plan: Plan, parameters=None, outcome: Outcome = Outcome.OK) -> TrialResult:
        step_s = self.sample_s(plan) * plan.node_batch
        return TrialResult(
            plan=plan,
            role=Role.SEARCH,
            outcome=outcome,
            measurement=Measurement(warmup_s=(step_s,), samples_s=(step_s,) * 5),
            elapsed_s=5.0 + 6 * step_s,
            parameters=parameters or {},
        )

    def search(self, search: PlanSearch, trials: int) -> list[Plan]:
        tried = []
        for _ in range(trials):
            proposal = search.propose()
            if proposal is None:
                break
            search.tell(proposal, self.result(proposal.plan, proposal.parameters))
            tried.append(proposal.plan)
        return tried

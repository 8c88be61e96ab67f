"""Searches of an imagined lab: what use cases there are, trials, and the plans that were found."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from datetime import datetime

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError
from launch.plan import Plan
from planner.plans.measured_steps import StepPoint, steps_from_points
from planner.plans.software import current_software
from planner.plans.stored_plan import Baseline, ComparedPlan, StoredPlan
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import Study
from probes.hardware import Hardware
from probes.timing import Interval, Measurement

CASES = (
    ("simplebig", 4.1e9, 57_000_000, 6003, 32),
    ("complexsmall", 92e9, 134_000_000, 6003, 16),
    ("cases/keywords.py:Keywords", 0.3e9, 2_400_000, 84_000, 64),
    ("vision.segment:Lakes", 31e9, 31_000_000, 12_400, 8),
    ("cases/translate.py:SmallTransformer", 9e9, 44_000_000, 220_000, 32),
)
_REASONS = (
    (Outcome.OUT_OF_MEMORY, "exit code -9 and the cgroup counted an oom_kill"),
    (Outcome.OUT_OF_MEMORY, "CUDA out of memory. Tried to allocate 2.50 GiB"),
    (Outcome.TIME_LIMIT, "no step ended within 60 s"),
    (
        Outcome.CRASH,
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x9216 and 4096x4096)",
    ),
)


def facts_of(flop: float, parameters: int, samples: int, batch: int, digest: str) -> CaseFacts:
    return CaseFacts(
        default_batch=batch,
        train_samples=samples,
        validation_samples=samples // 8,
        parameter_count=parameters,
        parameter_bytes=4 * parameters,
        flop_per_sample=flop,
        max_stages=6,
        digest=digest,
        has_fused_optimizer=True,
    )


def make_trial(
    chance: random.Random, count: int, machine: Hardware, speed: float, batch: int, text: str
) -> TrialResult:
    """Make a trial of a study: its first two are the baseline and the defaults."""
    cores = machine.cpu.usable_cores
    role = Role.SEARCH
    if count == 0:
        plan, role = Plan(strategy="sequential", node_batch=batch), Role.BASELINE
    elif count == 1:
        plan = Plan(strategy="threads", node_batch=batch, threads_per_process=cores)
        role = Role.DEFAULTS
    else:
        plan = _draw(chance, cores, batch)
        if count % 17 == 16:
            role = Role.FINAL
    if role is Role.SEARCH and chance.random() < 0.09:
        outcome, reason = chance.choice(_REASONS)
        return TrialResult(
            plan=plan,
            role=role,
            outcome=outcome,
            reason=reason + text,
            log_tail=f"Traceback (most recent call last):\n  {reason}{text}",
            elapsed_s=chance.uniform(3, 60),
        )
    rate = speed * _factor(plan, cores)
    step_s = plan.node_batch / rate
    wobble = chance.gauss(0, 0.02)
    measurement = Measurement(
        warmup_s=(2.2 * step_s,),
        samples_s=tuple(step_s * math.exp(wobble + chance.gauss(0, 0.03)) for _ in range(9)),
        input_share=round(chance.uniform(0.0, 0.06), 4),
    )
    is_slow = role is Role.SEARCH and chance.random() < 0.25
    return TrialResult(
        plan=plan,
        role=role,
        outcome=Outcome.SLOWER if is_slow else Outcome.OK,
        reason="slower than the leader with 97.5 %" if is_slow else None,
        measurement=measurement,
        peak_memory_bytes=int(6e8 + 3e6 * plan.node_batch * plan.replicas),
        elapsed_s=10 * step_s + 4,
        parameters={f"{plan.strategy}.batch": plan.node_batch},
    )


def _draw(chance: random.Random, cores: int, batch: int) -> Plan:
    """Draw a plan that can be."""
    while True:
        strategy = chance.choice(("threads", "processes", "processes", "pipeline"))
        count = chance.choice([k for k in (1, 2, 4, 8, 16, 32) if k <= cores])
        processes = max(2, min(count, cores)) if strategy != "threads" else 1
        threads = max(1, cores // processes)
        try:
            return Plan(
                strategy=strategy,
                node_batch=batch * chance.choice((1, 2, 4, 8)),
                processes=processes,
                threads_per_process=threads if strategy != "threads" else cores,
                replicas=processes if strategy == "processes" else 1,
                micro_batches=chance.choice((2, 4, 8)) if strategy == "pipeline" else 1,
                memory_format=chance.choice(("contiguous", "channels_last")),
                allocator=chance.choice(("default", "retain")),
                fused_optimizer=chance.random() < 0.5,
                input=chance.choice(("files", "cache")),
            )
        except InvalidPlanError:
            continue


def _factor(plan: Plan, cores: int) -> float:
    """Give the speed of a plan / that of one core with everything as it is by default."""
    factor = min(plan.threads, cores) ** 0.86
    factor *= {"processes": 1.12, "pipeline": 0.7}.get(plan.strategy, 1.0)
    factor *= 1.09 if plan.memory_format == "channels_last" else 1.0
    factor *= 1.06 if plan.allocator == "retain" else 1.0
    factor *= 1.03 if plan.fused_optimizer else 1.0
    factor *= 1.05 if plan.input == "cache" else 1.0
    return factor * plan.node_batch / (plan.node_batch + 6 * plan.replicas)


def make_stored_plan(
    chance: random.Random,
    study_id: int,
    study: Study,
    facts: CaseFacts,
    machine: Hardware,
    best: tuple[float, Plan],
    speed: float,
    batch: int,
    created_at: datetime,
) -> StoredPlan:
    """Make the plan that a search has found, with what it was compared with."""
    rate, plan = best
    cores = machine.cpu.usable_cores
    default = Plan(strategy="threads", node_batch=batch, threads_per_process=cores)
    one = Plan(strategy="sequential", node_batch=batch)
    usual = replace(plan, node_batch=max(batch, plan.replicas * plan.micro_batches))
    runner_up = replace(plan, memory_format="contiguous", allocator="default")
    default_rate = speed * _factor(default, cores)
    software = current_software()
    if chance.random() < 0.15:
        software = {**software, "torch": "2.9.1"}
    return StoredPlan(
        use_case=study.use_case,
        use_case_digest=facts.digest,
        node=study.node,
        fingerprint=study.fingerprint,
        plan=plan,
        throughput_samples_per_s=_around(rate, 0.012),
        speedup=_around(rate / default_rate, 0.02),
        baseline=Baseline(
            strategy=default.strategy,
            node_batch=batch,
            throughput_samples_per_s=default_rate,
        ),
        peak_memory_bytes=int(6e8 + 3e6 * plan.node_batch),
        created_at=created_at,
        software=software,
        step_time=steps_from_points(
            [
                StepPoint(node_batch=size, step_s=size / rate + 0.02)
                for size in sorted({max(1, plan.node_batch // 2), plan.node_batch})
            ]
        ),
        gradient_bytes=4 * facts.parameter_count,
        comparisons=tuple(
            ComparedPlan(
                name=name,
                plan=other,
                throughput_samples_per_s=speed * _factor(other, cores),
                speedup=_around(rate / (speed * _factor(other, cores)), 0.03),
            )
            for name, other in (
                ("defaults", default),
                ("one_core", one),
                ("own_batch", usual),
                ("runner_up", runner_up),
            )
        ),
        begins_early=plan.devices == ("cpu",),
        study_id=study_id,
    )


def _around(value: float, side: float) -> Interval:
    return Interval(median=value, low=value * (1 - side), high=value * (1 + side), count=24)

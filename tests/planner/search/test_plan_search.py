"""What is tried next, on machines whose times are known."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.strategies import strategy_names
from planner.search.plan_search import PlanSearch, find_obstacles
from planner.trials.result import Outcome, Role, TrialResult
from probes import codec
from probes.hardware import CoreLimit, Cpu, Gpu, Hardware, Memory
from probes.timing import Measurement

CASE = CaseFacts(
    default_batch=32,
    train_samples=5418,
    validation_samples=585,
    parameter_count=57_000_000,
    parameter_bytes=228_000_000,
    max_stages=8,
    digest="sha256:1",
    batch_choices=(32, 64, 128, 256),
    inputs=("files", "cache"),
    pixel_bytes=900_000_000,
    allocators=("default", "retain", "jemalloc"),
    has_fused_optimizer=True,
    can_compile=True,
)


def node_of(cores: int) -> Hardware:
    cpu = Cpu(
        architecture="x86_64",
        logical_cores=cores,
        usable_cores=cores,
        core_ids=tuple(range(cores)),
        limits=(CoreLimit(source="test", cores=cores),),
    )
    return Hardware(node="n1", cpu=cpu, memory=Memory(total_bytes=2**33, usable_bytes=2**33))


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
        time_s = (1 + 0.06 * abs(math.log2(parts / self.parts))) / plan.threads
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
            measurement=Measurement(warmup_s=(step_s,), samples_s=(step_s,) * 3),
            elapsed_s=1.0,
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


MACHINES = [
    Machine(parts=2, fixed=0.1, retain=0.88),
    Machine(parts=1, fixed=0.3, retain=0.9, jemalloc=0.86),
    Machine(parts=2, fixed=0.02, channels_last=1.05, compiled=0.92),
    Machine(parts=1, fixed=0.1, cache=1.0, l=1.05, fused=1.02, compiled=1.2),
]


def fastest_there_is(machine: Machine, cores: int) -> float:
    """Give the best time: settings count each by itself, so the best of each make the best plan."""
    plain = Plan(strategy="threads", node_batch=256, threads_per_process=cores)
    parts = min(machine.parts, cores)
    choices = {
        "memory_format": ("contiguous", "channels_last"),
        "allocator": ("default", "retain", "jemalloc"),
        "fused_optimizer": (False, True),
        "compile": (False, True),
    }
    best = replace(plain, processes=parts, replicas=parts, threads_per_process=cores // parts)
    for name, values in choices.items():
        best = min((replace(best, **{name: value}) for value in values), key=machine.sample_s)
    read = (best, replace(best, input="cache"), replace(best, loader_workers=1))
    return min(map(machine.sample_s, read))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("cores", "near"), [(2, 1.02), (8, 1.10)])
def test_fifteen_trials_lead_near_the_best_plan_there_is(machine, cores, near):
    search = PlanSearch(strategy_names(), CASE, node_of(cores))
    tried = machine.search(search, 15)
    found = min(map(machine.sample_s, tried))
    assert found < near * fastest_there_is(machine, cores)


def test_first_guesses_come_first_whole_models_before_stages():
    tried = MACHINES[0].search(PlanSearch(strategy_names(), CASE, node_of(2)), 4)
    assert tried[0].threads == 2
    assert {plan.strategy for plan in tried[:3]} == {"threads", "processes"}


def changes(one: Plan, other: Plan) -> list[str]:
    values, others = codec.to_builtins(one), codec.to_builtins(other)
    return [name for name, value in values.items() if others[name] != value]


def test_setting_that_made_no_difference_is_not_tried_again_while_others_wait():
    machine = Machine(parts=2, fixed=0.3, retain=0.9)
    machine.factors["fused"] = 1.0
    search = PlanSearch(("processes",), CASE, node_of(8))
    tried = machine.search(search, 25)
    best, fused = tried[0], []
    for number, plan in enumerate(tried[1:], start=1):
        if changes(best, plan) == ["fused_optimizer"]:
            fused.append(number)
        best = min(best, plan, key=machine.sample_s)
    assert len(fused) <= 1


def test_strategy_that_has_clearly_lost_is_left_alone():
    machine = MACHINES[0]
    search = PlanSearch(("sequential", "threads", "processes"), CASE, node_of(2))
    tried = machine.search(search, 30)
    assert [plan.strategy for plan in tried].count("sequential") == 1


def test_what_the_user_does_not_allow_is_never_proposed():
    case = replace(CASE, precisions=("fp32", "bf16"))
    search = PlanSearch(
        ("threads", "processes"), case, node_of(2), allows=lambda plan: plan.precision == "bf16"
    )
    assert {plan.precision for plan in MACHINES[0].search(search, 12)} == {"bf16"}


def earlier(plan: Plan, **parameters: object) -> TrialResult:
    """A trial of a release that knew fewer settings."""
    return MACHINES[0].result(plan, {"strategy": plan.strategy, **parameters})


OLD = {
    "threads.layout": "1x2",
    "threads.node_batch": 128,
    "threads.micro_batches": 1,
    "threads.memory_format": "channels_last",
    "threads.precision": "fp32",
    "threads.loader_workers": 1,
    "threads.allocator": "retain",
}
OLD_PLAN = Plan(
    strategy="threads",
    node_batch=128,
    threads_per_process=2,
    memory_format="channels_last",
    loader_workers=1,
    allocator="retain",
)


def test_trials_of_a_release_with_fewer_settings_are_built_on():
    history = [earlier(OLD_PLAN, **OLD)]
    search = PlanSearch(("threads",), CASE, node_of(2), history=history)
    (known,) = search._study.trials[:1]
    assert known.value == pytest.approx(MACHINES[0].sample_s(OLD_PLAN))
    assert known.params["threads.input"] == "files"
    assert known.params["threads.compile"] is False
    tried = MACHINES[0].search(search, 10)
    assert OLD_PLAN not in tried


@pytest.mark.parametrize(
    "gone",
    [
        {"threads.layout": "4x1"},
        {"threads.node_batch": 7},
        {"threads.precision": "bf16"},
        {"strategy": "farm"},
        {"threads.memory_format": "contiguous"},
    ],
)
def test_earlier_trials_that_todays_space_does_not_hold_are_left_out(gone):
    history = [earlier(OLD_PLAN, **{**OLD, **gone}), MACHINES[0].result(OLD_PLAN)]
    search = PlanSearch(("threads",), CASE, node_of(2), history=history)
    assert all(trial.value is None for trial in search._study.trials)
    assert len(MACHINES[0].search(search, 6)) == 6


def test_what_cannot_run_here_says_why():
    obstacles = find_obstacles(("sequential", "threads", "processes"), CASE, node_of(1))
    assert obstacles.keys() == {"threads", "processes"}
    assert obstacles["threads"] == "usable_cores=1: threads need at least 2 cores"


def test_one_core_is_not_tried_where_the_baseline_shows_that_it_cannot_win():
    machine = MACHINES[0]
    baseline = machine.result(Plan(strategy="sequential", node_batch=32))
    search = PlanSearch(strategy_names(), CASE, node_of(8), history=[baseline])
    assert "sequential" not in {plan.strategy for plan in machine.search(search, 15)}


class FasterOnGpu(Machine):
    def sample_s(self, plan: Plan) -> float:
        return super().sample_s(plan) / (1 if "cpu" in plan.devices else 50)


def test_settings_of_a_gpu_are_changed_in_the_order_of_what_they_gain():
    gpu = Gpu(nvml_index=0, cuda_index=0, name="imagined", uuid="GPU-0")
    search = PlanSearch(("sequential",), CASE, replace(node_of(2), gpus=(gpu,)))
    tried = FasterOnGpu(parts=1, fixed=0.1).search(search, 4)
    assert [plan.devices for plan in tried[:2]] == [("cuda:0",), ("cpu",)]
    changed = [changes(tried[0], plan) for plan in tried[2:]]
    assert changed == [["cuda_graph"], ["node_batch"]]

"""What is tried next, on machines whose times are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from imagined_machines import CASE, Machine, node_of

from launch.plan import Plan
from launch.strategies import strategy_names
from planner.search.plan_search import WORTHWHILE_GAIN, PlanSearch
from planner.search.space import find_obstacles
from planner.trials.result import Outcome, TrialResult
from probes.hardware import Memory

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
@pytest.mark.parametrize("cores", [2, 8])
def test_fifteen_trials_lead_near_the_best_plan_there_is(machine, cores):
    case = replace(CASE, can_compile=False)  # it takes as long as all of these trials together
    machine.factors.pop("compiled", None)
    search = PlanSearch(strategy_names(), case, node_of(cores))
    tried = machine.search(search, 15)
    assert len(set(tried)) == 15
    assert min(map(machine.sample_s, tried)) < 1.03 * fastest_there_is(machine, cores)


def test_first_come_plans_that_use_the_whole_machine_whole_models_before_stages():
    tried = MACHINES[0].search(PlanSearch(strategy_names(), CASE, node_of(2)), 2)
    assert {plan.threads for plan in tried} == {2}
    assert {plan.strategy for plan in tried} <= {"threads", "processes"}


class Deceptive(Machine):
    """Threads are ahead with what is guessed first; processes are once other settings suit them."""

    def sample_s(self, plan: Plan) -> float:
        time_s = super().sample_s(plan)
        if plan.strategy != "processes":
            return time_s
        return time_s * (1.1 if plan.memory_format == "channels_last" else 0.65)


def test_strategy_that_is_behind_at_first_is_improved_as_well():
    """The story: only the single best plan got neighbours, and a search stayed in `threads`, 28 %
    from the best."""
    machine = Deceptive(parts=2, fixed=0.1, channels_last=0.97)
    tried = machine.search(PlanSearch(("threads", "processes"), CASE, node_of(2)), 20)
    best = min(tried, key=machine.sample_s)
    assert (best.strategy, best.memory_format) == ("processes", "contiguous")


class FastLoading(Machine):
    """Files by two loading processes beat decoded pictures; by none they are slow."""

    def sample_s(self, plan: Plan) -> float:
        factors = {0: 1.3, 1: 1.1, 2: 0.7}
        read = 1.0 if plan.input == "cache" else factors[plan.loader_workers]
        return read * super().sample_s(plan)


def test_decoded_pictures_are_left_for_files_with_loading_processes_in_one_step():
    """The story: that takes two changes at once, of which the first alone makes it slower."""
    machine = FastLoading(parts=2, fixed=0.1, cache=1.0)
    tried = machine.search(PlanSearch(("processes",), CASE, node_of(4)), 20)
    best = min(tried, key=machine.sample_s)
    assert (best.input, best.loader_workers) == ("files", 2)


class OneAllocatorEach(Machine):
    """An allocator that does nothing for threads makes processes faster."""

    def sample_s(self, plan: Plan) -> float:
        gains = plan.strategy == "processes" and plan.allocator == "jemalloc"
        return super().sample_s(plan) * (0.85 if gains else 1.0)


def test_change_that_brought_nothing_in_one_plan_is_tried_where_it_would():
    machine = OneAllocatorEach(parts=2, fixed=0.1)
    threads = Plan(strategy="threads", node_batch=128, threads_per_process=2)
    history = [
        machine.result(threads),
        machine.result(replace(threads, allocator="jemalloc")),
        machine.result(replace(threads, allocator="retain")),
    ]
    search = PlanSearch(("threads", "processes"), CASE, node_of(2), history=history)
    best = min(machine.search(search, 20), key=machine.sample_s)
    assert (best.strategy, best.allocator) == ("processes", "jemalloc")


def test_strategy_that_has_clearly_lost_is_left_alone():
    machine = MACHINES[0]
    search = PlanSearch(("sequential", "threads", "processes"), CASE, node_of(2))
    tried = machine.search(search, 20)
    assert [plan.strategy for plan in tried].count("sequential") <= 1


def test_what_the_user_does_not_allow_is_never_proposed():
    case = replace(CASE, precisions=("fp32", "bf16"))
    search = PlanSearch(
        ("threads", "processes"), case, node_of(2), allows=lambda plan: plan.precision == "bf16"
    )
    assert {plan.precision for plan in MACHINES[0].search(search, 12)} == {"bf16"}


SMALL_SPACE = replace(
    CASE,
    batch_choices=(32,),
    inputs=("cache",),
    allocators=("default", "retain"),
    has_fused_optimizer=False,
    can_compile=False,
)
"""On one core 12 plans: micro-batches, memory format, allocator."""


def test_space_that_is_used_up_has_no_next_plan():
    search = PlanSearch(("sequential",), SMALL_SPACE, node_of(1))
    assert len(MACHINES[0].search(search, 13)) == 12
    assert search.propose() is None
    assert search.expected_gain() == 0


def test_plan_that_was_withdrawn_is_proposed_again():
    """The story: it counted as tried, and never had its trial once there was time for it again."""
    search = PlanSearch(("sequential",), SMALL_SPACE, node_of(1))
    MACHINES[0].search(search, 11)
    last = search.propose()
    search.withdraw(last)
    assert search.propose().plan == last.plan


def test_several_proposals_may_be_open_at_once_and_differ():
    search = PlanSearch(strategy_names(), CASE, node_of(4))
    machine = MACHINES[0]
    machine.search(search, 3)
    opened = [search.propose() for _ in range(4)]
    assert len({proposal.plan for proposal in opened}) == 4
    for proposal in reversed(opened):
        search.tell(proposal, machine.result(proposal.plan, proposal.parameters))
    assert search.expected_gain() > 0


def test_expected_gain_falls_below_what_is_worth_a_trial_and_a_known_node_has_nothing_to_gain():
    machine = MACHINES[0]
    first = PlanSearch(("threads", "processes"), CASE, node_of(2))
    history = []
    while first.expected_gain() > WORTHWHILE_GAIN:
        proposal = first.propose()
        history.append(machine.result(proposal.plan, proposal.parameters))
        first.tell(proposal, history[-1])
    assert 2 < len(history) < 42
    assert machine.sample_s(first.rank_tried()[0]) < 1.02 * fastest_there_is(machine, 2)
    again = PlanSearch(("threads", "processes"), CASE, node_of(2), history=history, seed=1)
    assert again.expected_gain() < WORTHWHILE_GAIN
    assert again.rank_tried()[0] == first.rank_tried()[0]


def test_plan_that_cannot_fit_is_never_tried():
    small = replace(node_of(2), memory=Memory(total_bytes=2**33, usable_bytes=2**33))
    machine = MACHINES[0]

    def result(plan: Plan, parameters=None) -> TrialResult:
        peak = int(1e9 + 60e6 * plan.node_batch / plan.micro_batches)
        return replace(machine.result(plan, parameters), peak_memory_bytes=peak)

    plan = Plan(strategy="processes", node_batch=32, processes=2, replicas=2)
    history = [result(plan), result(replace(plan, node_batch=64))]
    search = PlanSearch(("processes",), CASE, small, history=history)
    batches = []
    for _ in range(15):
        proposal = search.propose()
        batches.append(proposal.plan.node_batch / proposal.plan.micro_batches)
        search.tell(proposal, result(proposal.plan, proposal.parameters))
    assert max(batches) <= 128  # 256 would take 16 of 8 GiB


def test_what_fails_is_avoided_and_the_search_goes_on():
    machine = MACHINES[0]
    search = PlanSearch(("threads", "processes"), CASE, node_of(2))
    tried = []
    for _ in range(20):
        proposal = search.propose()
        fails = proposal.plan.strategy == "processes"
        outcome = Outcome.CRASH if fails else Outcome.OK
        search.tell(proposal, machine.result(proposal.plan, proposal.parameters, outcome))
        tried.append(proposal.plan.strategy)
    assert tried.count("processes") <= 6


def test_what_a_plan_that_got_stuck_waited_for_is_no_time_to_start():
    """The story: one that stood for a minute after its first step made starts seem to take half a
    minute, beside which the steps of a trial hardly counted."""
    machine = MACHINES[0]
    plan = Plan(strategy="threads", node_batch=32, threads_per_process=2)
    worked = machine.result(plan)
    stuck = machine.result(replace(plan, allocator="jemalloc"), outcome=Outcome.TIME_LIMIT)
    history = [worked, replace(stuck, elapsed_s=60.0)]
    times_s = [
        PlanSearch(("threads",), CASE, node_of(2), history=known)._trial_s(plan, 0.001)
        for known in (history[:1], history)
    ]
    assert times_s[0] == times_s[1]


class FasterOnGpu(Machine):
    def sample_s(self, plan: Plan) -> float:
        on_gpus = super().sample_s(plan) * plan.threads / (30 * len(plan.devices))
        return super().sample_s(plan) if "cpu" in plan.devices else on_gpus


def test_cpu_is_left_alone_once_a_gpu_has_won():
    """The story: plans for CPUs were tried after a GPU had won."""
    machine = FasterOnGpu(parts=4, fixed=0.1)
    node = node_of(16, gpus=4)
    baseline = machine.result(Plan(strategy="sequential", node_batch=32))
    search = PlanSearch(strategy_names(), CASE, node, history=[baseline])
    tried = machine.search(search, 15)
    on_cpu = [plan for plan in tried[1:] if "cpu" in plan.devices]
    assert on_cpu == []


def test_first_guesses_leave_no_gpu_idle():
    """The story: a guess for 4 GPUs left two of them idle."""
    machine = FasterOnGpu(parts=4, fixed=0.1)
    tried = machine.search(PlanSearch(strategy_names(), CASE, node_of(16, gpus=4)), 2)
    assert [len(plan.devices) for plan in tried] == [4, 4]
    search = PlanSearch(("pipeline",), CASE, node_of(16, gpus=4))
    assert len(search.propose().plan.devices) == 4


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
        {"strategy": "farm"},
        {"threads.memory_format": "contiguous"},
    ],
)
def test_earlier_trials_that_todays_space_does_not_hold_are_known_but_not_drawn(gone):
    history = [earlier(OLD_PLAN, **{**OLD, **gone}), MACHINES[0].result(OLD_PLAN)]
    search = PlanSearch(("threads",), CASE, node_of(2), history=history)
    assert search._study.trials[0].params == {}
    assert OLD_PLAN not in MACHINES[0].search(search, 6)


def test_what_cannot_run_here_says_why():
    obstacles = find_obstacles(("sequential", "threads", "processes"), CASE, node_of(1))
    assert obstacles.keys() == {"threads", "processes"}
    assert obstacles["threads"] == "usable_cores=1: threads need at least 2 cores"


def test_what_a_plan_has_shown_while_it_still_races_is_known():
    """The story: the best plan raced on and its time was told only when it left, so the search was
    blind to it: on imagined GPUs it tried plans twice as slow, one after the other."""
    machine = Machine(parts=2, fixed=0.1, retain=0.6)
    search = PlanSearch(("processes",), CASE, node_of(2), history=[])
    racing = search.propose()
    assert search.rank_tried() == []
    shown = machine.result(racing.plan, racing.parameters)
    search.note(racing, shown)
    assert search.rank_tried() == [racing.plan]
    assert search.propose().plan != racing.plan
    search.tell(racing, shown)
    assert search.rank_tried() == [racing.plan]

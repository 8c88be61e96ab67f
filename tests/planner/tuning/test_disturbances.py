"""The line that says what others took of the machine while plans were timed."""

from dataclasses import replace

import pytest
from sample_plan import SOFTWARE

from launch.plan import Plan
from planner.trials.result import Role
from planner.tuning.disturbances import explain_disturbances
from planner.tuning.entrant import Entrant
from planner.tuning.findings import Findings
from planner.tuning.running_trials import RunningTrials
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Measurement
from tests.planner.trials.raced_turns import finished
from tests.planner.tuning.recorded_search import CASE, NODE, REQUEST

BUSY = Disturbance(others_cores=0.8)


def trial(turns=10, *, counted=0, repeated=0, disturbance=BUSY, batch=32):
    """A trial of some turns, the first of them disturbed, and the very first taken again."""
    made = finished(batch, dict.fromkeys(range(1, turns + 1), 1.0))
    turn = DisturbedTurn(round=1, disturbance=disturbance, was_repeated=False)
    again = [replace(turn, was_repeated=True)] * repeated
    disturbed = (*again, *(replace(turn, round=number) for number in range(1, counted + 1)))
    return replace(made, measurement=replace(made.measurement, disturbed=disturbed))


def test_quiet_search_and_one_whose_disturbed_turns_were_all_made_again_say_nothing():
    assert explain_disturbances([trial()]) is None
    assert explain_disturbances([trial(repeated=5)]) is None
    assert explain_disturbances([]) is None


def test_what_disturbed_turns_that_count_is_said_with_the_remedy():
    said = explain_disturbances([trial(counted=2, repeated=3), trial(counted=4, batch=64)])
    assert said == (
        "other processes used 0.8 cores during 30 % of the turns (3 more were "
        "disturbed and repeated): end other processes, or raise --budget for surer intervals"
    )


def test_turns_of_the_final_come_first_for_claims_rest_on_them():
    """A final with all turns disturbed was said to be disturbed during 12 % of the turns."""
    final = [
        replace(trial(turns=2, counted=2, batch=batch), role=role)
        for role, batch in ((Role.FINAL, 64), (Role.DEFAULTS, 32))
    ]
    said = explain_disturbances([trial(turns=20, batch=16), *final])
    assert said.startswith("other processes used 0.8 cores during 100 % of the turns of the final:")


def test_turns_of_the_defaults_in_the_search_are_none_of_the_final():
    """They were said to be of the final, also where there was none."""
    search = replace(trial(counted=10), role=Role.DEFAULTS)
    assert "100 % of the turns:" in explain_disturbances([search, search])
    quiet = Measurement(samples_s=(1.0,) * 10, rounds=tuple(range(101, 111)))
    final = [
        replace(trial(batch=batch), role=role, measurement=quiet)
        for role, batch in ((Role.FINAL, 64), (Role.DEFAULTS, 32))
    ]
    assert "33 % of the turns:" in explain_disturbances([search, *final])


def test_plan_that_was_stored_twice_counts_once():
    first = trial(turns=2, counted=2)
    assert explain_disturbances([first, trial(counted=2)]) == explain_disturbances(
        [trial(counted=2)]
    )


@pytest.mark.parametrize(
    ("disturbance", "said"),
    [
        (Disturbance(stolen_cores=0.3), "the hypervisor gave 0.3 cores to other machines"),
        (Disturbance(throttled_cores=1.0), "a used-up quota kept 1.0 cores idle"),
        (Disturbance(overheated=1), "the processor slowed down for heat 5 times"),
        (Disturbance(waiting_share=0.4), "tasks waited for a core 40 % of the time"),
        (
            Disturbance(others_gpu_share=0.35),
            "other processes computed on a GPU 35 % of the time during 50 % of the turns",
        ),
        (Disturbance(slowed_gpus=2), "a GPU slowed down for heat or lack of power 10 times"),
        (replace(BUSY, stolen_cores=0.2), "0.8 cores and the hypervisor gave 0.2 cores"),
    ],
)
def test_each_cause_is_named(disturbance, said):
    assert said in explain_disturbances([trial(counted=5, disturbance=disturbance)])


@pytest.mark.parametrize(
    ("disturbance", "remedies"),
    [
        (Disturbance(overheated=1), "improve the cooling of the processor, or "),
        (Disturbance(slowed_gpus=1), "improve the cooling and power supply of the GPU, or "),
        (Disturbance(stolen_cores=0.3), ""),
        (Disturbance(throttled_cores=1.0), "raise the quota, or "),
        (replace(BUSY, stolen_cores=0.2, others_gpu_share=0.35), "end other processes, or "),
        (
            replace(BUSY, overheated=1),
            "end other processes, or improve the cooling of the processor, or ",
        ),
    ],
)
def test_remedy_is_that_of_the_cause(disturbance, remedies):
    """The story: "end them" was said of a processor's heat."""
    said = explain_disturbances([trial(counted=5, disturbance=disturbance)])
    assert said.endswith(f" % of the turns: {remedies}raise --budget for surer intervals")


@pytest.mark.parametrize(("rounds", "counted"), [(3, 3), (4, 3)])
def test_race_judges_plans_by_the_rounds_that_a_final_would_count(store, recorded, rounds, counted):
    """The story: a turn that others disturbed made the faster plan leave as the slower one."""
    findings = Findings(REQUEST, CASE, NODE, SOFTWARE, store.studies)
    trials = RunningTrials(
        findings, recorded.start, recorded.listen, checked_s=0.0, clock=recorded.clock
    )
    plans = [Plan(strategy="sequential", node_batch=batch) for batch in (32, 64)]
    slow, fast = (Entrant(plan, Role.SEARCH, recorded.start(plan)) for plan in plans)
    slow.turns_s = dict.fromkeys(range(rounds), 2.0)
    fast.turns_s = {**slow.turns_s, 0: 40.0}
    fast.disturbed = [DisturbedTurn(round=0, disturbance=BUSY, was_repeated=False)]
    logs = trials.pair_logs(slow, fast)
    assert len(logs) == counted
    assert (min(logs) > 0) == (rounds == 4)

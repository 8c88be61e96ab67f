"""Tables of Lerat et al.: each way to spread a step, or why this machine has no figure of it."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace

import paper_cases
import pytest
import worth_cases
from paper_cases import EVIDENCE, FACTS, NODE

from launch.use_cases import make_workload
from planner.paper_tables import load_paper
from planner.paper_tables._evidence import StoredEvidence
from planner.paper_tables._wanted import WantedPlan, WantedTraining, WantedTrial
from planner.report.papers.tables import paper_table_csv
from planner.trials.result import Outcome, Role
from planner.tuning.tune_request import TuneRequest, check_budget
from probes.hardware import Gpu
from probes.timing import Measurement

PAPER = load_paper("lerat_2022")


def rows_of(key, held=EVIDENCE):
    (table,) = (one for one in PAPER.tables(held) if one.key == key)
    return {row["setting"].text: row for row in table.rows}


def test_speedups_are_those_over_one_core_beside_the_published_ones():
    row = rows_of("lerat-simplebig-cpu")["several processes"]
    assert row["published"].number == 15.57
    best = max(t.result.throughput_samples_per_s().median for t in worth_cases.TRIALS)
    assert row["ours"].number == pytest.approx(best / 20, rel=0.02)
    assert row["rate"].number == pytest.approx(best, rel=0.02)
    assert row["machine"].text == "vm"


def test_one_core_is_shown_by_the_time_of_an_epoch():
    row = rows_of("lerat-simplebig-cpu")["one core"]
    assert row["published"].number == 879.38
    assert row["ours"].number == pytest.approx(3200 / 20, rel=0.01)


def test_hardware_without_gpus_is_the_reason_and_no_row_is_left_out():
    rows = rows_of("lerat-simplebig-gpu")
    published = [row["published"].text for row in rows.values()]
    assert published == ["121.82", "not found here", "8.01", "not found here"]
    assert {row["ours"].missing for row in rows.values()} == {"no GPU on vm: no NVIDIA driver"}


@pytest.mark.parametrize(
    ("num_gpus", "setting", "why"),
    [
        (0, "model parallel: pipeline", "no GPU on vm"),
        (1, "model parallel: pipeline", "1 GPU on vm, and it needs 2"),
        (3, "hybrid: pipelines side by side", "3 GPUs on vm, and it needs 4"),
    ],
)
def test_too_few_gpus_are_counted_where_no_reason_for_none_is_on_record(num_gpus, setting, why):
    """The story: three were "3 GPU on vm"."""
    gpus = tuple(Gpu(nvml_index=n, cuda_index=n) for n in range(num_gpus))
    node = replace(NODE, gpus=gpus, gpu_reason=None)
    held = StoredEvidence(studies={"simplebig": [paper_cases.study(hardware=node)]})
    assert rows_of("lerat-simplebig-gpu", held)[setting]["ours"].missing == why


@pytest.mark.parametrize(
    ("in_parts", "why"),
    [(1, "1 usable GPU on vm, and it needs 2"), (2, "no usable GPU: GPU 0 is cut up by MIG")],
)
def test_gpus_that_cannot_be_trained_on_are_not_counted(in_parts, why):
    """The story: a machine with two, one of them cut up by MIG, was said to lack a trial alone."""
    gpus = tuple(Gpu(nvml_index=n, cuda_index=n, mig_enabled=n < in_parts) for n in range(2))
    node = replace(NODE, gpus=gpus, gpu_reason=None)
    held = StoredEvidence(studies={"simplebig": [paper_cases.study(hardware=node)]})
    said = rows_of("lerat-simplebig-gpu", held)["model parallel: pipeline"]["ours"].missing
    assert said.startswith(why)


def test_a_strategy_that_cannot_run_here_says_so():
    why = rows_of("lerat-simplebig-cpu")["hybrid: pipelines side by side"]["ours"].missing
    assert "at least 4 workers" in why


def test_failed_trials_are_the_reason():
    pipeline = replace(worth_cases.BEST, strategy="pipeline", options={})
    failed = replace(
        worth_cases.trial(30, pipeline, 10.0).result,
        outcome=Outcome.OUT_OF_MEMORY,
        measurement=None,
        reason="worker 1 was killed",
    )
    trials = [*worth_cases.TRIALS, replace(worth_cases.trial(30, pipeline, 1.0), result=failed)]
    held = StoredEvidence(studies={"simplebig": [paper_cases.study(trials=trials)]})
    why = rows_of("lerat-simplebig-cpu", held)["model parallel: pipeline"]["ours"].missing
    assert why == "its trials failed: worker 1 was killed"


@pytest.mark.parametrize("outcome", [Outcome.TIME_LIMIT, Outcome.NO_TIME])
def test_strategy_whose_trials_had_too_little_time_is_wanted_again_with_more_of_it(outcome):
    """Its reason named an option of another command, and no report ever tried it again."""
    pipeline = replace(worth_cases.BEST, strategy="pipeline", options={})
    trial = worth_cases.trial(30, pipeline, 10.0)
    why = "0 of 2 steps until the time limit: raise --budget"
    late = replace(trial.result, outcome=outcome, measurement=None, reason=why)
    trials = [*worth_cases.TRIALS, replace(trial, result=late)]
    facts = replace(FACTS, sample_s=1.0)
    study = paper_cases.study(trials=trials, facts=facts)
    held = StoredEvidence(studies={"simplebig": [study]})
    wanted = {one.key: one for one in PAPER.wanted(held, NODE)}
    assert wanted["trial simplebig pipeline"].least_s == 2 * study.least_budget_s == 1152
    assert rows_of("lerat-simplebig-cpu", held)["model parallel: pipeline"]["ours"].missing == (
        "its trials had too little time: ddlplan report --measure, or "
        "ddlplan tune --use-case simplebig --strategies pipeline --budget 20m"
    )
    # The least time was 12 steps, which the search refuses: it began and failed in each pass.
    budget_s = study.least_budget_s
    request = TuneRequest(workload=make_workload("simplebig"), budget_s=budget_s)
    check_budget(request, replace(facts, sample_s=1.1), NODE)


def test_what_could_not_be_measured_just_now_is_the_reason():
    reasons = {"trial simplebig pipeline": "no time was left"}
    held = replace(EVIDENCE, reasons=reasons)
    why = rows_of("lerat-simplebig-cpu", held)["model parallel: pipeline"]["ours"].missing
    assert why == "no time was left"


def test_training_on_several_hosts_is_held_against_one_core_of_the_first():
    row = rows_of("lerat-simplebig-nodes")["MPI over nodes, CPU"]
    assert row["published"].number == 26.62
    assert row["ours"].number == pytest.approx(60 / 20, rel=0.02)
    assert row["machine"].text == "2 hosts"


def test_first_host_is_found_by_its_own_name_whatever_the_host_file_calls_it():
    """The story: one that was listed by its address never had a baseline."""
    trained = paper_cases.training(worth_cases.BEST, 60.0, hosts=2)
    first, second = trained.record.hosts
    by_address = replace(
        trained,
        record=replace(
            trained.record, hosts=(replace(first, host="10.0.0.5", machine="vm"), second)
        ),
        read_usage=lambda: {"10.0.0.5": trained.usage["vm"]},
    )
    held = replace(EVIDENCE, trainings={"simplebig": [by_address]})
    row = rows_of("lerat-simplebig-nodes", held)["MPI over nodes, CPU"]
    assert row["ours"].number == pytest.approx(60 / 20, rel=0.02)


def test_training_on_several_hosts_is_held_against_one_core_with_the_same_data_alone():
    """The rate of generated pictures was divided by that of photos."""
    of_photos = paper_cases.study(facts=replace(FACTS, data="/photos"))
    made_up = paper_cases.training(worth_cases.BEST, 60.0, number=3, hosts=2)
    given = paper_cases.training(worth_cases.BEST, 40.0, number=4, hosts=2, data="/photos")
    held = StoredEvidence(
        studies={"simplebig": [of_photos]},
        trainings={"simplebig": [made_up]},
        data={"simplebig": "/photos"},
    )
    why = rows_of("lerat-simplebig-nodes", held)["MPI over nodes, CPU"]["ours"].missing
    assert why.startswith("no baseline of vm with the same data is among the studies shown: ")
    for data in ({}, held.data):
        held = replace(held, trainings={"simplebig": [made_up, given]}, data=data)
        row = rows_of("lerat-simplebig-nodes", held)["MPI over nodes, CPU"]
        assert row["data"].text == "/photos"
        assert row["ours"].number == pytest.approx(40 / 20, rel=0.02)


def test_training_in_fp32_comes_before_a_faster_one_that_rounds_and_that_says_so():
    """The story: the ratio of one in bf16 to a core in fp32 was shown without a word."""
    rounds = replace(worth_cases.BEST, precision="bf16")
    faster = paper_cases.training(rounds, 90.0, number=4, hosts=2)
    held = replace(EVIDENCE, trainings={"simplebig": [faster, *EVIDENCE.trained("simplebig")]})
    row = rows_of("lerat-simplebig-nodes", held)["MPI over nodes, CPU"]
    assert row["ours"].number == pytest.approx(60 / 20, rel=0.02)
    assert row["plan"].text == "processes: vm vm1"
    held = replace(EVIDENCE, trainings={"simplebig": [faster]})
    row = rows_of("lerat-simplebig-nodes", held)["MPI over nodes, CPU"]
    assert row["plan"].text == "processes bf16: vm vm1"
    plot = next(one for one in PAPER.plots(held) if one.key == "lerat-simplebig-use")
    assert "2 hosts: processes: training 4 on vm in bf16." in plot.notes


def test_strategy_that_takes_the_gpus_of_a_machine_is_not_said_to_have_failed_on_its_cores():
    """The story: what a pipeline on GPUs failed of stood in the table of the CPU."""
    node = replace(NODE, gpus=tuple(Gpu(nvml_index=n, cuda_index=n) for n in range(2)))
    pipeline = replace(
        worth_cases.BEST, strategy="pipeline", replicas=1, devices=("cuda:0", "cuda:1")
    )
    trial = worth_cases.trial(30, pipeline, 10.0)
    failed = replace(
        trial.result, outcome=Outcome.OUT_OF_MEMORY, measurement=None, reason="no room on cuda:1"
    )
    trials = [*worth_cases.TRIALS, replace(trial, result=failed)]
    study = paper_cases.study(trials=trials, hardware=node)
    held = StoredEvidence(studies={"simplebig": [study]})
    missing = [
        rows_of(f"lerat-simplebig-{device}", held)["model parallel: pipeline"]["ours"].missing
        for device in ("cpu", "gpu")
    ]
    assert missing == [
        "on vm its plans train on GPUs",
        "its trials failed: no room on cuda:1",
    ]


def test_commands_that_give_what_is_missing_name_the_data_of_the_row():
    """They searched with generated data, and the row of the photos stayed as it was."""
    of_photos = paper_cases.study(facts=replace(FACTS, data="/my photos"))
    given = paper_cases.training(worth_cases.BEST, 40.0, hosts=2, data="/my photos")
    tune = "ddlplan tune --use-case simplebig --data '/my photos'"
    held = StoredEvidence(studies={"simplebig": [of_photos]})
    why = rows_of("lerat-simplebig-cpu", held)["model parallel: pipeline"]["ours"].missing
    assert why.endswith(f"{tune} --strategies pipeline")
    held = StoredEvidence(trainings={"simplebig": [given]})
    why = rows_of("lerat-simplebig-nodes", held)["MPI over nodes, CPU"]["ours"].missing
    assert why.endswith(f"{tune} --hosts FILE")


def test_rows_name_their_data_which_a_file_of_a_table_has_no_notes_for():
    made_up = paper_cases.study(facts=replace(FACTS, is_generated=True))
    held = replace(EVIDENCE, studies={"simplebig": [made_up]})
    assert rows_of("lerat-simplebig-cpu", held)["one core"]["data"].text == "generated"
    (table,) = (one for one in PAPER.tables(held) if one.key == "lerat-simplebig-cpu")
    rows = [*csv.DictReader(io.StringIO(paper_table_csv(table)))]
    assert {row["data"] for row in rows} == {"generated"}


def test_spark_names_the_command_that_trains_through_it_and_that_nothing_stores_it():
    why = rows_of("lerat-simplebig-nodes")["Spark over nodes"]["ours"].missing
    command = "ddlplan compare --use-case simplebig --with spark_map_reduce"
    assert f"shown there, not stored: {command}" in why


def test_a_study_of_other_data_than_those_asked_for_does_not_count():
    """`--data` was ignored once figures of generated data were stored."""
    held = replace(EVIDENCE, data={"simplebig": "/photos"})
    trials = [
        one.strategy
        for one in PAPER.wanted(held, NODE)
        if isinstance(one, WantedTrial) and one.use_case == "simplebig"
    ]
    assert "threads" in trials
    of_photos = paper_cases.study(facts=replace(FACTS, data="/photos"))
    held = replace(held, studies={"simplebig": [of_photos]})
    assert held.study_of("simplebig", NODE.fingerprint()) is of_photos


def test_studies_that_are_not_shown_are_counted():
    held = StoredEvidence(studies={"simplebig": [paper_cases.study(others=2)]})
    (table,) = (one for one in PAPER.tables(held) if one.key == "lerat-simplebig-cpu")
    assert any(note.endswith("; 2 other studies are not shown.") for note in table.notes)


def test_use_over_time_has_a_line_for_each_strategy_and_says_which_are_missing():
    plot = next(one for one in PAPER.plots(EVIDENCE) if one.key == "lerat-simplebig-use")
    assert list(plot.usage) == ["2 hosts: processes", "processes", "sequential"]
    text = "\n".join(plot.notes)
    assert "hybrid: missing: usable_cores=2: at least 4 workers" in text
    assert "pipeline: missing: no training with it is stored" in text
    assert "GPUs in use: missing" in text
    assert "processes: training 2 on vm." in plot.notes
    assert "vm: no probe under this name is stored." in plot.notes


def test_lines_of_use_over_time_name_their_machines_and_these_their_hardware():
    """Trainings of two machines were lines of one plot, and nothing said which ran where."""
    one = paper_cases.training(worth_cases.BEST, 40.0, number=6)
    other = paper_cases.training(worth_cases.ONE_CORE, 20.0, number=5)
    hosts = tuple(replace(host, host="old") for host in other.record.hosts)
    elsewhere = replace(
        other,
        record=replace(other.record, hosts=hosts),
        read_usage=lambda: {"old": other.usage["vm"]},
    )
    trainings = {"simplebig": [one, elsewhere]}
    held = StoredEvidence(trainings=trainings, machines=[paper_cases.MACHINE])
    (use, _) = PAPER.plots(held)
    assert use.notes[1:5] == (
        "processes: training 6 on vm.",
        "sequential: training 5 on old.",
        "vm: x86_64, 2 usable cores, 8 GiB, no GPU.",
        "old: no probe under this name is stored.",
    )


def test_where_no_strategy_was_trained_each_reason_is_said_once():
    """The text of `report` had a long line with the same reason of every strategy."""
    none = StoredEvidence()
    (use, _) = PAPER.plots(none)
    assert use.notes == (
        "each strategy: missing: no training with it is stored: ddlplan report --measure.",
        "The curves of the paper: not found here.",
    )
    (use, _) = PAPER.plots(replace(none, studies=EVIDENCE.studies))
    text = " ".join(use.notes)
    assert "hybrid: missing: usable_cores=2: at least 4 workers" in text
    assert text.count("no training with it is stored") == 1


def test_only_what_is_not_held_is_wanted():
    wanted = [one for one in PAPER.wanted(EVIDENCE, NODE) if one.use_case == "simplebig"]
    trials = {one.strategy for one in wanted if isinstance(one, WantedTrial)}
    trainings = {one.name: one.trial for one in wanted if isinstance(one, WantedTraining)}
    assert trials == {"pipeline"}
    assert trainings.keys() == {"pipeline", "threads"}
    assert trainings["pipeline"] is None
    assert trainings["threads"].plan.strategy == "threads"
    assert not any(isinstance(one, WantedPlan) for one in wanted)


def test_the_best_plan_is_wanted_after_the_strategies_until_one_is_stored():
    held = StoredEvidence(studies={"simplebig": [paper_cases.study(has_plan=False)]})
    wanted = [one.key for one in PAPER.wanted(held, NODE) if one.use_case == "simplebig"]
    assert wanted[:2] == ["trial simplebig pipeline", "plan simplebig"]


def test_the_run_on_one_core_is_wanted_until_it_is_held():
    """All speedups of the paper are over it."""
    trials = [one for one in worth_cases.TRIALS if one.result.role is not Role.BASELINE]
    held = StoredEvidence(studies={"simplebig": [paper_cases.study(trials=trials)]})
    wanted = {one.key: one for one in PAPER.wanted(held, NODE)}
    study = held.studies["simplebig"][0]
    steps_s = 0.0
    for strategy in ("processes", "threads"):
        fastest = study.fastest(strategy)
        steps_s += fastest.plan.node_batch / fastest.throughput_samples_per_s().median
    # Each gets warm and has turns beside it: two minutes for five plans gave it none.
    assert wanted["plan simplebig"].least_s > study.least_budget_s + 6 * steps_s


@pytest.mark.parametrize(("role", "outcome"), [(Role.FINAL, Outcome.OK), (Role.BASELINE, None)])
def test_the_run_on_one_core_is_not_wanted_again_where_it_won_or_failed(role, outcome):
    """On one core PyTorch's default is that run, and nothing of the role `baseline` is stored."""
    (first, *others) = worth_cases.TRIALS
    result = replace(first.result, role=role)
    if outcome is None:
        result = replace(result, outcome=Outcome.TIME_LIMIT, measurement=None)
    held = StoredEvidence(
        studies={"simplebig": [paper_cases.study(trials=[replace(first, result=result), *others])]}
    )
    assert "plan simplebig" not in [one.key for one in PAPER.wanted(held, NODE)]
    row = rows_of("lerat-simplebig-cpu", held)["one core"]
    assert (row["ours"].number is None) is (outcome is None)
    if outcome is None:  # what does not measure it again is not named
        assert row["ours"].missing.endswith("ddlplan tune --use-case simplebig --budget 5m")


def test_nothing_is_wanted_again_once_it_is_held():
    pipeline = replace(worth_cases.BEST, strategy="pipeline", options={})
    trials = [*worth_cases.TRIALS, worth_cases.trial(30, pipeline, 10.0)]
    plans = (worth_cases.ONE_CORE, worth_cases.ALL_CORES, worth_cases.BEST, pipeline)
    held = StoredEvidence(
        studies={case: [paper_cases.study(case, trials=trials)] for case in PAPER.use_cases},
        trainings={
            case: [paper_cases.training(plan, 10.0) for plan in plans] for case in PAPER.use_cases
        },
    )
    assert list(PAPER.wanted(held, NODE)) == []


def raced(number, plan, step_s, rounds, role, *, noise=0.0):
    """A trial whose turns were in these rounds."""
    trial = worth_cases.trial(number, plan, 10.0, role)
    times_s = tuple(step_s * (1 + noise * math.sin(7 * number + 3 * n)) for n in rounds)
    times = Measurement(samples_s=times_s, rounds=rounds)
    return replace(trial, result=replace(trial.result, measurement=times))


def test_speedup_of_two_rounds_takes_the_noise_of_all_plans_beside_it():
    """Two rounds showed "1.47 times (0.23 to 9.7)"."""
    rounds = tuple(range(1, 15))
    trials = [
        raced(0, worth_cases.ONE_CORE, 2.0, (1, 2), Role.BASELINE, noise=0.05),
        raced(1, worth_cases.ALL_CORES, 1.0, (1, 2), Role.SEARCH, noise=0.05),
        raced(2, worth_cases.BEST, 1.0, rounds, Role.FINAL, noise=0.02),
        raced(
            3, replace(worth_cases.BEST, allocator="retain"), 1.0, rounds, Role.FINAL, noise=0.02
        ),
    ]
    study = paper_cases.study(trials=trials)
    speedup = study.speedup(study.fastest("threads"))
    assert speedup.low > 1.5
    assert speedup.high < 2.7


def test_speedup_takes_every_round_in_which_a_search_timed_both():
    trials = [
        raced(0, worth_cases.ONE_CORE, 2.0, (1, 2, 3), Role.BASELINE),
        raced(1, worth_cases.ALL_CORES, 1.0, (1, 2, 3), Role.SEARCH),
        raced(2, worth_cases.ONE_CORE, 6.0, (11, 12), Role.BASELINE),
        raced(3, worth_cases.ALL_CORES, 3.0, (11, 12), Role.DEFAULTS),
    ]
    study = paper_cases.study(trials=trials)
    speedup = study.speedup(study.fastest("threads"))
    assert (speedup.median, speedup.count) == (pytest.approx(2.0), 5)
    assert speedup.high < 2.2
    for one in trials:
        if one.result.plan == worth_cases.ONE_CORE:
            slowed = worth_cases.beside_others(one.result.measurement)
            trials[one.number] = replace(one, result=replace(one.result, measurement=slowed))
    study = paper_cases.study(trials=trials)
    wide = study.speedup(study.fastest("threads"))
    assert wide.low == pytest.approx(speedup.low / worth_cases.BUSY.most_slowed)
    assert wide.high == pytest.approx(speedup.high)

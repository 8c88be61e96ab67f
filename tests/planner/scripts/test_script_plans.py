"""Plans of a script: what is drawn, and what each plan says of the command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.scripts.environment import make_start, patches_of
from launch.scripts.program import Program
from planner.scripts.naming import is_script, script_arguments, script_name
from planner.scripts.plan_check import check_script_plan
from planner.scripts.plans import ScriptPlans, find_patches
from planner.search.space import PlanSpace
from probes.node import probe

WORDS = ["python", "train.py", "--batch", "{batch}", "--workers={workers}", "--lr", "{lr}"]
CHOICES = {"batch": (32, 64), "workers": (0, 2), "lr": (0.1, 0.2)}


@pytest.fixture(scope="module")
def node():
    return probe(quick=True)


@pytest.fixture
def plans(node):
    program = Program.parse(WORDS, cores=node.cpu.usable_cores, choices=CHOICES)
    return ScriptPlans(program=program, samples=64, processes=1, cores=node.cpu.usable_cores)


def facts() -> CaseFacts:
    return CaseFacts(
        default_batch=64,
        train_samples=64,
        validation_samples=0,
        parameter_count=0,
        parameter_bytes=0,
        max_stages=1,
        digest="sha256:0",
    )


def test_samples_of_a_step_go_with_the_batch_where_gradients_are_accumulated(plans, node):
    space = PlanSpace(plans.sources(None), facts(), node)
    (guess,) = space.guesses
    doubled = space.find({**guess.parameters, "script.node_batch": 128})
    assert doubled is not None
    assert (doubled.plan.node_batch, doubled.plan.options["batch"]) == (128, 64)
    start = make_start(plans.program, doubled.plan, node)
    assert start.command == (
        *("python", "train.py", "--batch", "64", "--workers=0", "--lr", "0.1"),
    )


def test_a_whole_run_is_one_sample_whatever_its_batch_and_its_processes_are(node):
    words = ["./train", "{batch}", "{processes}"]
    choices = {"batch": (32, 64), "processes": (1, 2)}
    program = Program.parse(words, cores=2, choices=choices, is_python=False)
    plans = ScriptPlans(program=program, samples=1, processes=1, counts_runs=True, cores=2)
    space = PlanSpace(plans.sources(None), facts(), node)
    (guess,) = space.guesses
    drawn = [guess.plan, *(near.plan for near in space.neighbours(guess)), plans.own_plan]
    assert {plan.node_batch for plan in drawn} == {1}
    assert {plan.options["batch"] for plan in drawn} == {32, 64}
    two = {**guess.parameters, "script.processes": 2, "script.threads_per_process": 1}
    assert space.find(two).plan.node_batch == 1


def test_script_as_it_is_sets_nothing(plans, node):
    start = make_start(plans.program, plans.own_plan, node)
    assert (start.environment, start.cores) == ({}, ())
    assert "--batch 32" in " ".join(start.command)


def test_every_plan_that_is_drawn_is_sound_and_found_again(plans, node):
    space = PlanSpace(plans.sources(None), facts(), node)
    (guess,) = space.guesses
    near = space.neighbours(guess)
    assert {n.plan.options["lr"] for n in near} == {0.1, 0.2}
    assert {n.plan.loader_workers for n in near} == {0, 2}
    for drawn in near:
        check_script_plan(drawn.plan)
        found = space.find_plan(drawn.plan, drawn.parameters)
        assert found is not None
        assert found.key == drawn.key


def test_plan_at_the_own_batch_differs_in_nothing_else(plans, node):
    space = PlanSpace(plans.sources(None), facts(), node)
    (guess,) = space.guesses
    doubled = space.find({**guess.parameters, "script.node_batch": 128})
    assert doubled is not None
    assert plans.at_own_batch(doubled.plan) == guess.plan


def test_script_itself_is_changed_only_where_that_is_asked_for(plans, node):
    def options(plans: ScriptPlans) -> set[str]:
        space = PlanSpace(plans.sources(None), facts(), node)
        (guess,) = space.guesses
        assert not patches_of(guess.plan)
        return {name for drawn in space.neighbours(guess) for name in patches_of(drawn.plan)}

    assert options(plans) == set()
    asked = find_patches(("loader", "model"), plans.program, has_gpu=False)
    of_model = {"channels_last", "autocast", "compile"}
    assert options(replace(plans, patches=asked)) == of_model | {"persistent_workers"}
    without = Program.parse(WORDS[:2], cores=2)
    assert "loader_workers" in find_patches(("loader",), without, has_gpu=False)
    assert patches_of(replace(plans, patches=asked).own_plan) == {}


@pytest.mark.parametrize("change", [{"precision": "bf16"}, {"micro_batches": 2}, {"compile": True}])
def test_what_only_the_script_can_do_is_refused(change):
    with pytest.raises(InvalidPlanError, match=next(iter(change))):
        check_script_plan(Plan(strategy="script", node_batch=32, **change))


def test_name_of_a_script_gives_its_words_back():
    words = ["python", "my train.py", "--name", "it's {batch}"]
    assert is_script(script_name(words))
    assert script_arguments(script_name(words)) == words

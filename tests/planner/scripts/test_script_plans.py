"""Plans of a script: what is drawn, and what each plan says of the command."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from imagined_machines import Machine, node_of
from sample_plan import FOUND

from launch.case_facts import CaseFacts
from launch.errors import InvalidPlanError, ScriptError
from launch.plan import Plan
from launch.scripts.environment import make_start, patches_of
from launch.scripts.program import Program
from launch.workload import Workload
from planner.api.scripts.tuning import TunedScript, tune_script
from planner.cli.scripts import make_program
from planner.commands.tune import keep_batch_options
from planner.exports.head import head_lines
from planner.report.plans import plan_settings
from planner.scripts.naming import (
    code_files,
    command_for,
    describe_trained,
    digest,
    hides_workers,
    is_script,
    measuring_options,
    script_arguments,
    script_name,
)
from planner.scripts.plan_check import check_script_plan
from planner.scripts.plans import ScriptPlans, check_placeholders, find_patches
from planner.search.plan_search import PlanSearch
from planner.search.space import PlanSpace
from planner.tuning.tune_request import TuneRequest
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
    near = [other.plan for guess in space.guesses for other in space.neighbours(guess)]
    drawn = [*(guess.plan for guess in space.guesses), *near, plans.defaults_plan]
    assert {plan.node_batch for plan in drawn} == {1}
    assert {plan.options["batch"] for plan in drawn} == {32, 64}
    assert {plan.processes for plan in drawn} == {1, 2}


class Ranks(Machine):
    """A machine on which every doubling of the processes changes the time by the same factor."""

    def __init__(self, doubled: float) -> None:
        super().__init__(parts=1, fixed=0.1)
        self.doubled = doubled

    def sample_s(self, plan: Plan) -> float:
        return super().sample_s(plan) * self.doubled ** math.log2(plan.processes)


@pytest.mark.parametrize("doubled", [0.7, 1.0, 1.3])
@pytest.mark.parametrize("cores", [2, 6, 8])
def test_numbers_of_processes_are_among_the_first_plans_that_are_tried(cores, doubled):
    """The story: with {processes} a search of twelve trials on two cores tried one process alone.

    No plan of two processes was one change away from a plan that uses all cores, and the search
    took two processes for the two stages of a pipeline.
    """
    words = ["torchrun", "--nproc-per-node", "{processes}", "train.py", "{batch}"]
    program = Program.parse(words, cores=cores, choices={"batch": (32, 64)})
    plans = ScriptPlans(program=program, samples=32, processes=1, cores=cores)
    machine = Ranks(doubled)
    history = [machine.result(plans.defaults_plan)]
    search = PlanSearch(plans.sources(None), facts(), node_of(cores), history=history)
    tried = machine.search(search, 8)
    assert max(plan.processes for plan in tried[:2]) > 1
    best = min([plans.defaults_plan, *tried], key=machine.sample_s)
    if doubled != 1.0:
        assert (best.processes > 1) == (doubled < 1.0)


def test_values_that_fit_the_cores_with_none_of_the_others_are_named():
    words = ["torchrun", "--nproc-per-node", "{processes}", "train.py", "--threads", "{threads}"]
    program = Program.parse(words, cores=2, choices={"threads": (2,)})
    plans = ScriptPlans(program=program, samples=32, processes=1, cores=2)
    assert plans.left_out == [("processes", 2)]
    usual = Program.parse(words, cores=2)
    assert not ScriptPlans(program=usual, samples=32, processes=1, cores=2).left_out


def test_processes_times_threads_use_no_more_than_the_cores():
    words = ["torchrun", "--nproc-per-node", "{processes}", "train.py"]
    program = Program.parse(words, cores=6, choices={"processes": (2, 1, 3)})
    plans = ScriptPlans(program=program, samples=32, processes=2, cores=6)
    space = PlanSpace(plans.sources(None), facts(), node_of(6))
    assert [(g.plan.processes, g.plan.threads_per_process) for g in space.guesses] == [
        (2, 3),  # the user's own number first, each with all cores
        (1, 6),
        (3, 2),
    ]
    near = [other.plan for guess in space.guesses for other in space.neighbours(guess)]
    assert max(plan.threads for plan in near) == 6


def test_script_as_it_is_sets_nothing(plans, node):
    start = make_start(plans.program, plans.defaults_plan, node)
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
        assert found.plan == drawn.plan


def test_trial_of_a_version_that_drew_processes_and_threads_apart_is_found_again():
    words = ["torchrun", "--nproc-per-node", "{processes}", "train.py", "{batch}"]
    program = Program.parse(words, cores=4, choices={"batch": (32, 64)})
    plans = ScriptPlans(program=program, samples=32, processes=1, cores=4)
    space = PlanSpace(plans.sources(None), facts(), node_of(4))
    every = {near.plan: near for guess in space.guesses for near in space.neighbours(guess)}
    assert {(one.plan.processes, one.plan.threads_per_process) for one in every.values()} == {
        *((1, 1), (1, 2), (1, 4), (2, 1), (2, 2), (4, 1))
    }
    for drawn in every.values():
        earlier = {name: v for name, v in drawn.parameters.items() if name != "script.layout"}
        earlier["script.processes"] = drawn.plan.processes
        earlier["script.threads_per_process"] = drawn.plan.threads_per_process
        found = space.find_plan(drawn.plan, earlier)
        assert found is not None
        assert found.parameters == drawn.parameters


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
    assert patches_of(replace(plans, patches=asked).defaults_plan) == {}


def test_values_are_the_numbers_that_they_are_but_for_those_which_no_database_holds():
    """The story: a trial with inf could not be stored, as its options are JSON."""
    texts = ["x=1,0.5,0.50,1e5,inf,-inf,nan"]
    program = make_program(["python", "t.py", "{x}"], texts, batch_size=None, is_python=True)
    assert program.choices["x"] == (1, 0.5, "0.50", "1e5", "inf", "-inf", "nan")


@pytest.mark.parametrize("name", ["layout", "no_python", "wait_policy", "patch_size", "precision"])
def test_placeholder_with_the_name_of_a_setting_is_refused_with_another_name(name):
    """The story: {patch_size}, of a model of pictures, was an unknown patch in every trial.

    {layout} left no plan that could be drawn, and {no_python} nothing that sees the steps.
    """
    words = ["python", "train.py", f"{{{name}}}", "{processes}", "{workers}", "{batch}"]
    program = Program.parse(words, cores=2, choices={name: ("a", "b"), "batch": (8,)})
    request = TuneRequest(workload=Workload(use_case="script:train.py"), budget_s=1.0)
    with pytest.raises(ScriptError, match=rf"placeholder {{{name}}}: .* such as {{my_{name}}}"):
        tune_script(TunedScript(program=program), request)
    other = [word.replace(f"{{{name}}}", f"{{my_{name}}}") for word in words]
    choices = {f"my_{name}": ("a", "b"), "batch": (8,)}
    check_placeholders(Program.parse(other, cores=2, choices=choices))


@pytest.mark.parametrize("change", [{"precision": "bf16"}, {"micro_batches": 2}, {"compile": True}])
def test_what_only_the_script_can_do_is_refused(change):
    with pytest.raises(InvalidPlanError, match=next(iter(change))):
        check_script_plan(Plan(strategy="script", node_batch=32, **change))


@pytest.mark.parametrize(
    ("samples", "processes", "batch", "options"),
    [
        (64, 1, 64, "--batch-size 32"),
        (64, 2, 32, "--choices processes=1"),  # the batch of each process
        (128, 2, 64, "--batch-size 32 --choices processes=1"),
        (64, 2, 64, "--batch-size 32"),  # that of both
    ],
)
def test_options_that_keep_the_batch_of_a_script_are_those_that_changed_it(
    samples, processes, batch, options
):
    """The story: two processes of the user's own batch each had `--batch-size 32 keeps it`."""
    own = Plan(strategy="script", node_batch=32, options={"batch": 32})
    plan = Plan(
        strategy="script", node_batch=samples, processes=processes, options={"batch": batch}
    )
    assert keep_batch_options(plan, own) == options


def test_name_of_a_script_gives_its_words_back():
    words = ["python", "my train.py", "--name", "it's {batch}"]
    assert is_script(script_name(words))
    assert script_arguments(script_name(words)) == words


def test_search_goes_on_in_the_study_of_an_earlier_one_only_with_the_same_choices(tmp_path):
    """The story: after `--choices batch=32,64`, a search with 64 alone could choose 32."""
    words = ["python", "train.py", "{batch}"]

    def of(*batches: int, is_python: bool = True) -> str:
        program = Program.parse(words, cores=2, choices={"batch": batches}, is_python=is_python)
        return digest(program, tmp_path)

    assert of(32, 64) == of(32, 64)
    assert len({of(32, 64), of(64), of(64, 32), of(64, is_python=False)}) == 4


def test_word_that_is_no_name_of_a_file_is_none_of_the_files_of_a_script(tmp_path):
    """It, and a script in a folder of another user, ended in a traceback of `launch`."""
    (tmp_path / "train.py").write_text("")
    assert code_files(["python", "train.py", "x" * 300 + ".py"], tmp_path) == ["train.py"]


def test_archive_that_trains_is_a_file_of_a_script_and_one_of_data_is_none(tmp_path):
    """The story: a plan of an earlier archive was launched without a word of the change."""
    for name in ("train.zip", "data.zip"):
        (tmp_path / name).write_text("")
    words = ["torchrun", "--nproc-per-node", "2", "train.zip", "--data", "data.zip"]
    assert code_files(words, tmp_path) == ["train.zip"]


def test_loader_processes_that_only_the_script_knows_are_not_shown():
    plan = Plan(strategy="script", node_batch=64)
    shown = [
        plan_settings(replace(FOUND, plan=plan, use_case=f"script:python train.py {words}"))
        for words in ("", "--workers={workers}")
    ]
    assert [settings.get("loader workers") for settings in shown] == [None, "0"]


def test_braces_that_are_the_scripts_own_name_no_loader_workers():
    assert hides_workers(script_name(["python", "train.py", "--format={{workers}}"]))
    assert not hides_workers(script_name(["python", "train.py", "--workers={workers}"]))


@pytest.mark.parametrize(
    ("command", "shown"), [("python 'train.py", "train.py"), ("python {", "python '{'"), ("", "")]
)
def test_plan_of_a_name_that_is_no_command_is_listed_as_others(command, shown):
    """The story: one such plan in a database, and plans list ended in a traceback."""
    stored = replace(FOUND, use_case=f"script:{command}")
    assert stored.to_json(stale=False)["loader_workers"] is None
    assert shown in describe_trained(stored.use_case)
    assert shown in command_for(stored.use_case, "tune")


def test_command_that_tunes_again_measures_as_before():
    """The story: a script of --no-python, tuned again as was said, was refused as no Python."""
    options = {"step_regex": r"step \d+", "no_python": True, "lr": 0.1}
    plan = Plan(strategy="script", node_batch=1, options=options)
    lines = head_lines(replace(FOUND, use_case="script:./train '{lr}'", plan=plan), ["torch 2"])
    said = r"--choices lr=A,B --no-python --step-regex 'step \d+' -- ./train {lr}"
    assert lines[-1].endswith(f": ddlplan tune {said}")
    patched = replace(plan, options={"patch_autocast": "bf16"})
    assert measuring_options(patched) == ["--patch", "model"]

"""Scripts that come to their end within a trial: started again, or refused with what was seen."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from free_ports import free_port
from torch_stand_in import write_torch

from launch.errors import ScriptError, ScriptFailedError, ScriptRefusedError
from launch.plan import Plan
from launch.reports import Report, Warned
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from launch.workload import Workload
from planner.api.scripts.tuning import ScriptTrials, TunedScript, tune_script
from planner.scripts.contender import ScriptContender
from planner.store import Store
from planner.trials.contender import TrialFailedError
from planner.trials.reports import TrialEnded
from planner.trials.result import Role
from planner.tuning.race import Race
from planner.tuning.tune_request import TuneRequest
from probes.hardware import Hardware, Speeds
from probes.node import probe

TRAIN = """
import sys, time
from torch.optim.optimizer import SGD
optimizer = SGD()
for step in range(int(sys.argv[1])):
    time.sleep(0.01)
    optimizer.step()
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def node() -> Hardware:
    return probe(quick=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_torch(tmp_path)
    (tmp_path / "train.py").write_text(TRAIN)
    return tmp_path


def contender(node: Hardware, folder: Path, steps: int, rest_s: float) -> ScriptContender:
    words = [sys.executable, "train.py", str(steps), str(rest_s)]
    program = Program.parse(words, cores=node.cpu.usable_cores)
    return ScriptContender(
        Plan(strategy="script", node_batch=1, options={"own_settings": True}),
        lambda plan: RunningScript(program, plan, node, folder=folder),
        node,
    )


def test_output_without_a_line_that_counts_as_a_step_is_refused_at_the_first_look(
    node, folder, monkeypatch: pytest.MonkeyPatch
):
    """Three trials crashed, and the last one asked for a larger budget."""
    monkeypatch.chdir(folder)
    words = [sys.executable, "train.py", "3", "0.0"]
    program = Program.parse(words, cores=node.cpu.usable_cores)
    script = TunedScript(program=program, step_regex=r"step \d+")
    with (
        ScriptTrials(script, node) as trials,
        pytest.raises(ScriptRefusedError, match=r"matches --step-regex 'step \\d\+': give"),
    ):
        trials.look(60.0)


def test_budget_in_which_no_other_plan_could_start_is_refused_at_the_first_look(
    folder, monkeypatch: pytest.MonkeyPatch
):
    """The story: 15 s took 42, and the script as it is was the plan."""
    monkeypatch.chdir(folder)
    program = Program.parse([sys.executable, "train.py", "900", "0.0"], cores=2)
    request = TuneRequest(workload=Workload(use_case="script:train.py"), budget_s=0.05)
    with pytest.raises(
        ScriptError, match=r"--budget 0\.05s: the script took \d+ s .*--budget \d+m"
    ):
        tune_script(TunedScript(program=program), request, db=str(folder / "planner.db"))
    assert not (folder / "planner.db").exists()


LISTENS = """
import socket, sys, time
from torch.optim.optimizer import SGD
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
optimizer = SGD()
while True:
    time.sleep(0.01)
    optimizer.step()
"""


def test_starts_of_a_script_with_a_fixed_port_take_turns(node, folder):
    """The story: the second one ended with "address already in use", and so did all plans."""
    (folder / "train.py").write_text(LISTENS)
    words = [sys.executable, "train.py", str(free_port())]
    program = Program.parse(words, cores=node.cpu.usable_cores)

    def start(plan: Plan) -> ScriptContender:
        return ScriptContender(
            plan, lambda plan: RunningScript(program, plan, node, folder=folder), node
        )

    race = Race(start)
    plan = Plan(strategy="script", node_batch=1, options={"own_settings": True})
    with ExitStack() as ending:
        entrants = []
        for _ in range(2):
            entrant = race.enter(plan, Role.SEARCH, time_limit_s=60.0)
            ending.callback(entrant.close)
            entrants.append(entrant)
        race.run_round(entrants)
    assert [entrant.failure for entrant in entrants] == [None, None]
    assert [len(entrant.turns_s) for entrant in entrants] == [1, 1]
    assert race.is_apart


class WarningError(Exception):
    pass


def end_at_warning(report: Report, _host: str | None = None, /) -> None:
    if isinstance(report, Warned) and "{batch}" in report.message:
        raise WarningError


@pytest.mark.parametrize("step_regex", [None, "step"])
@pytest.mark.parametrize(("batches", "is_warned"), [((32, 64), True), ((32,), False)])
def test_batches_that_a_script_need_not_follow_are_warned_of(
    folder, monkeypatch: pytest.MonkeyPatch, step_regex, batches, is_warned
):
    """A script without a data loader that ignored its batch was said to be twice as fast."""
    monkeypatch.chdir(folder)
    (folder / "train.py").write_text(TRAIN.replace("time.sleep(0.01)", "print('step', flush=True)"))
    words = [sys.executable, "train.py", "100000000", "{batch}"]
    program = Program.parse(words, cores=2, choices={"batch": batches})
    script = TunedScript(program=program, step_regex=step_regex)
    request = TuneRequest(workload=Workload(use_case="script:train.py"), budget_s=0.05)
    # The budget is refused behind the place of the warning.
    with pytest.raises(WarningError if is_warned else ScriptError):
        tune_script(script, request, db=str(folder / "planner.db"), listener=end_at_warning)


def test_output_without_a_line_yet_at_the_time_limit_may_need_more_time(node, folder):
    """A script that loaded its data for a minute was told that its regex was wrong."""
    (folder / "load.py").write_text("import time\nprint('loading')\ntime.sleep(600)")
    program = Program.parse([sys.executable, "load.py"], cores=node.cpu.usable_cores)
    plan = Plan(strategy="script", node_batch=1, options={"own_settings": True})
    with (
        RunningScript(program, plan, node, folder=folder, step_regex=r"step \d+") as script,
        pytest.raises(
            ScriptFailedError, match=r"give one that matches .* or raise --budget"
        ) as late,
    ):
        script.make_steps(1, time_limit_s=0.5)
    assert late.value.is_time_limit


def test_the_run_that_was_watched_first_is_started_again_when_it_ends(
    node, folder, monkeypatch: pytest.MonkeyPatch
):
    """The script as it is races to the end of a search; its closed run was taken once more."""
    monkeypatch.chdir(folder)
    words = [sys.executable, "train.py", "30", "0.0"]
    program = Program.parse(words, cores=node.cpu.usable_cores)
    with ScriptTrials(TunedScript(program=program), node) as trials:
        plans, line = trials.look(120.0)
        assert line == "optimizer SGD, 1 step, batches not seen: a step counts as 1 sample"
        script = trials.start(plans.defaults_plan)
        try:
            made = [len(script.make_steps(10, time_limit_s=60.0)) for _ in range(6)]
        finally:
            script.close()
    assert sum(made) >= 60


def test_script_that_ends_within_a_turn_is_started_again(node, folder):
    script = contender(node, folder, 30, 0.0)
    try:
        steps = [step for _ in range(6) for step in script.make_steps(10, time_limit_s=60.0)]
    finally:
        script.close()
    assert min(step.time_s for step in steps) >= 0.01  # it sleeps so long
    numbers = [step.step for step in steps]
    assert len(numbers) >= 60
    # The eight steps that warm another run up have numbers too: some are known to be missing.
    assert {after - before for before, after in pairwise(numbers)} == {1, 9}


def test_another_start_may_take_as_long_as_the_first_whatever_a_turn_may(node, folder):
    """The story: a script that took longer to start than its turns may was said to have got stuck
    where its run had come to its end, and what it had shown was lost."""
    (folder / "train.py").write_text(TRAIN.replace("optimizer =", "time.sleep(2)\noptimizer =", 1))
    script = contender(node, folder, 30, 0.0)
    try:
        script.make_steps(20, time_limit_s=60.0)
        steps = script.make_steps(20, time_limit_s=1.5)
    finally:
        script.close()
    assert len(steps) >= 20


def test_script_that_works_after_its_steps_is_refused_with_both_times(node, folder):
    script = contender(node, folder, 30, 0.5)
    script.make_steps(20, time_limit_s=60.0)
    with pytest.raises(TrialFailedError, match=r"a run took .* s .*% is work after the last step"):
        script.make_steps(20, time_limit_s=60.0)
    script.close()


HIDDEN = """
import sys, time
from torch.optim.optimizer import SGD
from torch.utils.data.dataloader import DataLoader
optimizer = SGD()
train, evaluation = (DataLoader([1] * int(count)) for count in sys.argv[1:])
for number, _ in enumerate(train):
    time.sleep(0.01)
    if number < 30:
        optimizer.step()
    if number in (15, 29):
        for _ in evaluation:
            time.sleep(0.01)
"""


@pytest.mark.parametrize(
    ("read", "evaluated", "line"),
    [
        (100, 1, r"70 batches read and no step .* \(a CUDA graph"),
        (30, 40, r"% is work after the last step"),
    ],
)
def test_hidden_steps_are_told_from_an_evaluation_by_what_they_read(
    node, folder, read, evaluated, line
):
    """What a CUDA graph did was said to be work after the last step; then such work was said to be
    what a CUDA graph did, where it recorded gradients."""
    (folder / "train.py").write_text(HIDDEN)
    script = contender(node, folder, read, evaluated)
    script.make_steps(20, time_limit_s=60.0)
    with pytest.raises(TrialFailedError, match=line):
        script.make_steps(20, time_limit_s=60.0)
    script.close()


def test_error_of_the_script_as_it_is_ends_the_search_with_its_file_and_line(
    node, folder, monkeypatch: pytest.MonkeyPatch
):
    """Eight more plans were tried, whose reason was the last line of the error alone."""
    monkeypatch.chdir(folder)
    lines = ["    if step == 20:", "        import json", "        json.loads('{')"]
    (folder / "train.py").write_text(TRAIN.replace("    time", "\n".join([*lines, "    time"]), 1))
    db = str(folder / "planner.db")
    with Store.open(db) as store:
        store.machines.save_probe(replace(node, speeds=Speeds(fp32_one_core_flop_per_s=5e9)))
    program = Program.parse([sys.executable, "train.py", "900", "0.0"], cores=2)
    request = TuneRequest(workload=Workload(use_case="script:train.py"), budget_s=60.0)
    ended: list[TrialEnded] = []

    def note_trials(report: Report, _host: str | None = None, /) -> None:
        if isinstance(report, TrialEnded):
            ended.append(report)

    with pytest.raises(ScriptFailedError, match=r"JSONDecodeError: .* \(train\.py, line 8\)"):
        tune_script(TunedScript(program=program), request, db=db, listener=note_trials)
    assert [trial.result.plan.options for trial in ended] == [{"own_settings": True}]


def test_script_with_fewer_steps_than_a_turn_is_refused_with_their_number(node, folder):
    script = contender(node, folder, 12, 0.0)
    script.make_steps(2, time_limit_s=60.0)
    with pytest.raises(TrialFailedError, match="no 38 steps, which a turn needs"):
        script.make_steps(30, time_limit_s=60.0)
    script.close()

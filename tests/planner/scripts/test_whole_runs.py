"""Whole runs: programs whose steps are not seen are timed from their start to their end."""

from __future__ import annotations

import pytest

from launch.plan import Plan
from launch.scripts.environment import make_start
from launch.scripts.program import Program
from launch.scripts.whole_run import WholeRun
from planner.api.scripts.tuning import ScriptTrials, TunedScript
from planner.scripts.contender import ScriptContender
from planner.trials.contender import TrialFailedError
from probes.node import probe


def contender(tmp_path, *words: str) -> ScriptContender:
    node = probe(quick=True)
    program = Program.parse(words, cores=node.cpu.usable_cores, is_python=False)
    plan = Plan(strategy="script", node_batch=1)
    return ScriptContender(plan, lambda one: WholeRun(program, one, node, folder=tmp_path), node)


def test_each_step_is_a_run_and_its_own_load_is_not_that_of_others(tmp_path):
    script = contender(tmp_path, "sleep", "0.2")
    for _ in range(2):
        steps = script.make_steps(2, time_limit_s=60.0)
        assert [step.samples for step in steps] == [1, 1]
        assert min(step.time_s for step in steps) >= 0.2
        assert script.disturbance is None  # it is not known


def test_a_run_that_fails_is_no_measurement(tmp_path):
    with pytest.raises(TrialFailedError, match="exit code 3"):
        contender(tmp_path, "sh", "-c", "exit 3").make_steps(1, time_limit_s=60.0)


def test_program_that_is_no_python_is_launched_with_nothing_in_front_of_it(tmp_path, monkeypatch):
    """With --step-regex the shim was, as before Python: one too old for it failed in launch."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    node = probe(quick=True)
    words = ["sh", "-c", "while echo step; do sleep 0.01; done", "python", "train.py"]
    program = Program.parse(words, cores=node.cpu.usable_cores, is_python=False)
    script = TunedScript(program=program, step_regex="step")
    with ScriptTrials(script, node) as trials:
        plans, _ = trials.look(60.0)
    launched = Program(arguments=program.arguments)
    start = make_start(launched, plans.defaults_plan, node, watch={"address": "ours"})
    assert (start.started_command, dict(start.started_environment)) == (tuple(words), {})

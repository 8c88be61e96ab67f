"""Whole runs: programs whose steps are not seen are timed from their start to their end."""

from __future__ import annotations

import pytest

from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.whole_run import WholeRun
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

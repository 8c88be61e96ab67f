"""Launches by stored plans: what has to be equal on all hosts, and the samples of their steps."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from launch.hosts.host_programs import HostProgram
from launch.plan import Plan
from launch.scripts.environment import ScriptStart
from launch.scripts.host_part import HostPartRequest, PartReady
from launch.scripts.program import Program
from launch.scripts.step_counter import CountedSteps
from launch.scripts.torchrun_nodes import TorchrunNodes
from planner.api import plans
from planner.api.scripts.launching import PreparedScript, ScriptRun, prepare_script
from planner.api.scripts.launching_hosts import (
    HostScript,
    PreparedHosts,
    _check_equal,
    _find_plans,
    _raise_failure,
)
from planner.api.tuning import find_launch_plan_id
from planner.commands.scripts.launch import _compare
from planner.errors import NoPlanError, StalePlanError, TrainingFailedError, UsageError
from planner.plans.software import current_software
from planner.plans.stored_plan import StoredPlan, utc_now
from planner.report.output import Output
from planner.scripts.host_parts import ScriptParts
from planner.scripts.naming import digest, script_name
from planner.trials.reports import ignore
from probes.node import probe
from probes.timing import Interval

COMMAND = (*("torchrun", "--nproc-per-node", "{processes}", "train.py", "{batch}", "{lr}"),)


def stored(rate: float, batch: int, **options: Any) -> StoredPlan:
    processes = options.pop("processes", 1)
    plan = Plan(
        strategy="script",
        processes=processes,
        node_batch=processes * batch,
        threads_per_process=options.pop("threads", 1),
        options={"batch": batch, "lr": 0.1, **options},
    )
    return StoredPlan(
        use_case="script:x",
        node="n",
        fingerprint="sha256:1",
        plan=plan,
        throughput_samples_per_s=Interval(median=rate, low=rate, high=rate, count=9),
        speedup=None,
        baseline=None,
        peak_memory_bytes=None,
        created_at=utc_now(),
        software={},
    )


def check(one: StoredPlan, other: StoredPlan) -> None:
    _check_equal(Program(arguments=COMMAND), {"a": one, "b": other})


def test_what_makes_a_host_fast_may_differ():
    check(
        stored(1, 8, wait_policy="active", patch_loader_workers=2),
        stored(9, 8, processes=4, threads=2),
    )


@pytest.mark.parametrize(
    ("other", "line"),
    [
        (stored(1, 16), r"differ in batch \(8 on a, 16 on b\).*--batch-size N"),
        (stored(1, 8, lr=0.2), r"differ in lr \(0.1 on a, 0.2 on b\).*--choices lr=ONE_VALUE"),
        (stored(1, 8, patch_autocast="bf16"), r"differ in patch_autocast \(None on a, bf16 on b"),
        (stored(1, 8, whole_runs=True), "tune without --no-python"),
    ],
)
def test_what_a_process_computes_has_to_be_equal(other, line):
    with pytest.raises(UsageError, match=line):
        check(stored(1, 8), other)


def test_plans_of_equal_words_and_other_samples_are_refused():
    """As where a script splits its batch over the processes of a host."""
    split = stored(1, 8, processes=2)
    split = replace(split, plan=replace(split.plan, node_batch=8))
    with pytest.raises(UsageError, match=r"samples of a process and step \(8.0 on a, 4.0 on b\)"):
        check(stored(1, 8), split)


@pytest.mark.parametrize(("read", "samples"), [(None, 24), (8, 24), (4, 12)])
def test_samples_of_a_step_are_those_that_a_process_reads(read, samples):
    ready = PartReady(command=COMMAND, environment={}, cores=(0,), port=1)
    hosts = tuple(
        HostScript(host=name, stored=plan, reasons=(), command=COMMAND, ready=ready)
        for name, plan in (("a", stored(100, 8)), ("b", stored(300, 8, processes=2)))
    )
    prepared = PreparedHosts(name="script:x", hosts=hosts, parts=None)
    assert prepared.samples_of(CountedSteps(made=9, counted=9, time_s=1.0, samples=read)) == samples
    assert prepared.bound_samples_per_s == pytest.approx(24 / (8 / 100))


def test_rate_of_a_launch_is_that_of_the_samples_which_its_processes_read():
    """The story: with 32 typed in the place of {batch}, a step counted as the 8 of the plan."""
    prepared = PreparedScript(
        stored=stored(100, 8),
        program=Program(arguments=("torchrun", "train.py", "32")),
        node=probe(quick=True),
        start=ScriptStart(command=(), started_command=()),
    )
    counted = CountedSteps(made=9, counted=1, time_s=2.0, samples=32, ranks=2)
    run = ScriptRun(prepared=prepared, elapsed_s=9.0, training_id=None, counted=counted)
    assert run.samples_per_s == 32.0
    said = _compare(run, Output("launch", as_json=False))
    assert said.endswith("in steps of 8 samples, measured 32.0 in steps of 64")


def test_script_of_each_folder_has_the_plan_of_its_own_code(store, tmp_path, monkeypatch):
    """The story: of two folders with one command and one database, both had the plan of the one
    that was tuned last, without a word."""
    words, node, found = (sys.executable, "train.py"), probe(quick=True), {}
    for text in ("one", "other", "third"):
        folder = tmp_path / text
        folder.mkdir()
        (folder / "train.py").write_text(text)
        tuned = replace(
            stored(1, 8),
            use_case=script_name(words),
            use_case_digest=digest(Program(arguments=words), folder),
            node=node.node,
            fingerprint=node.fingerprint(),
            plan=Plan(strategy="script", node_batch=8),
            software=current_software(),
        )
        if text != "third":
            store.plans.save(tuned)
    for text in ("one", "other", "third"):
        monkeypatch.chdir(tmp_path / text)
        db = str(tmp_path / "planner.db")
        prepared = prepare_script(words, db=db)
        found[text] = prepared.stored.id, prepared.changed
        assert plans.find_best(script_name(words), db=db).stored.id == prepared.stored.id
    assert found == {"one": (1, ()), "other": (2, ()), "third": (2, ("train.py",))}
    assert find_launch_plan_id(store, store.plans.get(1)) is None


def test_remedy_of_a_host_measures_as_the_plans_of_the_hosts_were(store):
    """The story: a script of --step-regex, tuned again as was said, showed no steps."""
    words, node = ("torchrun", "train.py"), probe(quick=True)
    nodes = {"a": node, "b": replace(node, node="b", memory=replace(node.memory, total_bytes=1))}
    stale = replace(
        stored(1, 8, step_regex="loss"),
        use_case=script_name(words),
        fingerprint=node.fingerprint(),
        software={"torch": "1.0.0"},
    )
    store.plans.save(stale)

    def find(allow_stale: bool) -> None:
        program = Program(arguments=words)
        _find_plans(store, stale.use_case, program, nodes, "planner.db", allow_stale=allow_stale)

    said = r": run ddlplan tune --step-regex loss .*-- torchrun train\.py there, with one"
    with pytest.raises(StalePlanError, match=f"host a: .*{said}"):
        find(allow_stale=False)
    with pytest.raises(NoPlanError, match=f"on b{said}"):
        find(allow_stale=True)


TORCHRUN = """#!/bin/sh
shift 8
"$PYTHON" "$@" || exit 1
"""


def test_error_that_ends_a_script_is_quoted_of_hosts_that_count_no_steps_too(tmp_path, monkeypatch):
    """The story: on several hosts only the exit code of torchrun was said."""
    (tmp_path / "torchrun").write_text(TORCHRUN)
    (tmp_path / "torchrun").chmod(0o755)
    (tmp_path / "train.py").write_text("raise FileNotFoundError('no weights.pt')\n")
    monkeypatch.setenv("PYTHON", sys.executable)
    request = HostPartRequest(
        arguments=(str(tmp_path / "torchrun"), "train.py"),
        plan=Plan(strategy="script", node_batch=1, options={"own_settings": True}),
        node=probe(quick=True),
        nodes=TorchrunNodes(count=1, rank=0, master_address="127.0.0.1"),
        folder=str(tmp_path),
        mark="mark",
    )
    start = HostProgram(name="node1", host=None, request=request)
    with ScriptParts([start], ssh_config=None) as parts:
        ready = parts.await_ready()
        end = parts.train(ready["node1"].port, keeps_stdout=True)
    line = r"has ended on node1, exit code 1: FileNotFoundError: no weights\.pt$"
    with pytest.raises(TrainingFailedError, match=line):
        _raise_failure(end, ignore)

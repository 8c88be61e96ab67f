"""Trials that `trials export` has written, and searches that `tune --replay` makes on them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from imagined_machines import Machine
from store_cases import STUDY, trial

from launch.plan import Plan
from launch.workload import Workload
from planner.api import grids
from planner.errors import NoPlanError
from planner.store import Store
from planner.trials.grid import read_grid
from planner.trials.result import Outcome, Role
from planner.tuning.tune_request import TuneRequest
from tests.planner.tuning.recorded_search import CASE, NODE, REQUEST, Recorded, Search
from tests.planner.tuning.test_looks import SLOW, TWO_MINUTES, SlowMachine


@pytest.mark.parametrize(
    ("machine", "request_", "case"),
    [(SlowMachine, TWO_MINUTES, SLOW), (Recorded, replace(REQUEST, budget_s=120), CASE)],
    ids=["looks", "whole batches"],
)
def test_replay_of_an_export_says_what_the_search_said(tmp_path, machine, request_, case):
    """The default batch was that of the smallest trial, such as a look, or a share of a job."""
    db, file = str(tmp_path / "planner.db"), tmp_path / "grid.json"
    with Store.open(db) as store:
        store.machines.save_probe(NODE)
        searched = Search(store, machine(), request_, case).tune()
    grids.export(request_.workload.use_case, file, NODE.node, db=db)
    grid = read_grid(file)
    assert grid.case.default_batch == case.default_batch
    assert grid.case.train_samples == case.train_samples
    replayed = grids.replay(file, request_).nodes[0].outcome
    recorded = [r.plan for r in grid.results if r.role.is_for_choice]
    assert replayed.plan.plan in recorded
    assert replayed.defaults.plan == searched.defaults.plan
    assert replayed.plan.speedup.median == pytest.approx(searched.plan.speedup.median, rel=0.04)


def test_export_of_a_first_release_takes_the_batch_of_the_defaults(tmp_path):
    """Its studies do not say what is trained; a share is smaller than the use case's batch."""
    db, machine = str(tmp_path / "planner.db"), Machine(parts=1, fixed=0.1)
    plan = Plan(strategy="threads", threads_per_process=2, node_batch=32)
    study = replace(STUDY, node=NODE.node, fingerprint=NODE.fingerprint())
    with Store.open(db) as store:
        store.machines.save_probe(NODE)
        study_id = store.studies.get_or_create(study)
        for batch, role, loaders in (
            (8, Role.SHARE, 0),
            (32, Role.DEFAULTS, 0),
            (64, Role.FINAL, 8),  # more than is offered where nothing waits for its input
        ):
            result = machine.result(replace(plan, node_batch=batch, loader_workers=loaders))
            store.studies.add_trial(study_id, replace(result, role=role))
    grids.export(study.use_case, tmp_path / "grid.json", NODE.node, db=db)
    request = TuneRequest(workload=Workload(use_case=study.use_case), budget_s=120)
    outcome = grids.replay(tmp_path / "grid.json", request).nodes[0].outcome
    assert outcome.defaults.plan.node_batch == 32
    assert (outcome.plan.plan.node_batch, outcome.plan.plan.loader_workers) == (64, 8)


def test_export_says_what_its_trials_were_measured_with(tmp_path):
    """The story: after an upgrade it named today's versions, and the machine as it is today."""
    db, old = str(tmp_path / "planner.db"), replace(NODE, cpu=replace(NODE.cpu, model="older"))
    study = replace(STUDY, node=old.node, fingerprint=old.fingerprint())
    with Store.open(db) as store:
        store.machines.save_probe(old)
        store.studies.add_trial(store.studies.get_or_create(study), trial(1))
        store.machines.save_probe(NODE)
    grid = grids.export(study.use_case, tmp_path / "grid.json", NODE.node, db=db)
    assert (grid.node.fingerprint(), grid.software) == (study.fingerprint, study.software)


def test_export_holds_no_trials_of_another_use_case_of_the_same_name(tmp_path):
    db, here = str(tmp_path / "planner.db"), "/here/a.py:Case"
    with Store.open(db) as store:
        store.machines.save_probe(NODE)
        for mark, place in enumerate((here, "/other/a.py:Case")):
            study = replace(STUDY, use_case=place, data=place)
            study = replace(study, node=NODE.node, fingerprint=NODE.fingerprint())
            store.studies.add_trial(store.studies.get_or_create(study), trial(mark))
    grid = grids.export(here, tmp_path / "grid.json", NODE.node, db=db)
    assert [one.parameters["mark"] for one in grid.results] == [0]


def test_export_is_of_the_study_that_was_used_last_and_not_of_the_newest(tmp_path):
    """The story: after a search in bf16 one in fp32 went on with its own, and bf16's was given."""
    db = str(tmp_path / "planner.db")
    study = replace(STUDY, node=NODE.node, fingerprint=NODE.fingerprint())
    with Store.open(db) as store:
        store.machines.save_probe(NODE)
        first = store.studies.get_or_create(study)
        store.studies.add_trial(first, trial(1))
        newest = store.studies.get_or_create(replace(study, precision="bf16"))
        store.studies.add_trial(newest, trial(2))
        store.studies.add_trial(first, trial(3))
    assert newest > first
    grid = grids.export(study.use_case, tmp_path / "grid.json", NODE.node, db=db)
    assert [one.parameters["mark"] for one in grid.results] == [1, 3]


def test_trials_without_times_are_no_grid(tmp_path):
    """The story: where all trials of a use case had failed, its database was called corrupt."""
    db, file = str(tmp_path / "planner.db"), tmp_path / "grid.json"
    failed = replace(trial(1), outcome=Outcome.OUT_OF_MEMORY, measurement=None, reason="killed")
    with Store.open(db) as store:
        store.machines.save_probe(NODE)
        study = replace(STUDY, node=NODE.node, fingerprint=NODE.fingerprint())
        store.studies.add_trial(store.studies.get_or_create(study), failed)
    with pytest.raises(NoPlanError, match="have times: run ddlplan tune first"):
        grids.export(STUDY.use_case, file, NODE.node, db=db)
    assert not file.exists()


def test_trials_of_a_node_without_a_probe_are_no_grid_and_are_not_denied(tmp_path):
    """The story: of trials that had times it was said that there were none."""
    db = str(tmp_path / "planner.db")
    with Store.open(db) as store:
        store.studies.add_trial(store.studies.get_or_create(STUDY), trial(1))
    with pytest.raises(NoPlanError, match=r"no probe of vm .* study 1 is stored"):
        grids.export(STUDY.use_case, tmp_path / "grid.json", STUDY.node, db=db)

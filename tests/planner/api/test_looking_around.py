"""What pages ask for: the best plans of all, one study with what it teaches, names."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
import store_cases
from training_samples import EPOCH, TRAINING
from worth_cases import FACTS, NODE, OBJECTIVE, STORED, TRIALS

from launch.noise_scale.estimate import NoiseScale
from planner.api import names, plans, studies, together
from planner.errors import StoreCorruptError
from planner.plans.software import current_software
from planner.plans.stored_plan import utc_now
from planner.report.table import Terminal
from planner.report.worth import worth_text
from planner.store import Store
from probes.timing import Interval
from tests.planner.cluster.alexnet_nodes import network, sum_time


def save(db, *changes):
    """Store a plan for each set of changes; give the numbers."""
    with Store.open(db) as store:
        return [store.plans.save(replace(STORED, study_id=None, **each)) for each in changes]


def at(rate):
    return Interval(median=rate, low=0.99 * rate, high=1.01 * rate, count=20)


def best(db):
    return [
        (one.stored.use_case, one.stored.node, one.stored.id)
        for one in plans.find_best_of_each(db=db)
    ]


def test_each_use_case_has_its_best_plan_on_each_machine(db):
    slow, fast, other, elsewhere = save(
        db,
        {"throughput_samples_per_s": at(10.0)},
        {"throughput_samples_per_s": at(20.0)},
        {"use_case": "complexsmall", "use_case_digest": "sha256:dd"},
        {"node": "birch"},
    )
    assert slow < fast
    assert best(db) == [
        ("complexsmall", "vm", other),
        ("simplebig", "birch", elsewhere),
        ("simplebig", "vm", fast),
    ]


def test_an_equal_use_case_that_lies_elsewhere_counts_once(db):
    """A file that was moved is the same use case: a launch takes the best of both places."""
    _, fast = save(
        db,
        {"use_case": "old.py:Case", "throughput_samples_per_s": at(10.0)},
        {"use_case": "new.py:Case", "throughput_samples_per_s": at(20.0)},
    )
    assert best(db) == [("new.py:Case", "vm", fast)]


def test_a_stale_plan_is_marked(db):
    with Store.open(db) as store:
        store.machines.save_probe(NODE)
    save(db, {"fingerprint": "sha256:other"})
    (found,) = plans.find_best_of_each(db=db)
    assert "made on other hardware" in found.stale_reasons


HERE = {"node": NODE.node, "fingerprint": NODE.fingerprint()}
STUDY = replace(store_cases.STUDY, facts=FACTS, **HERE)


def save_noise(store, scale, data, **changes):
    """Store a training of the study's use case that has measured a noise scale."""
    noise = NoiseScale(
        scale=scale, low=0.8 * scale, high=1.2 * scale, variance=scale, square=1.0, measurements=50
    )
    done = replace(EPOCH, noise=noise)
    values = {"use_case_digest": FACTS.digest, "data": data, "epochs_done": (done,)} | changes
    store.trainings.add(replace(TRAINING, **values))


def save_with_trials(store, data=None, objective=None):
    """Store a plan with the trials of its study; give its number."""
    study_id = store.studies.get_or_create(replace(STUDY, facts=replace(FACTS, data=data)))
    for one in TRIALS[:-1]:
        store.studies.add_trial(study_id, one.result)
    later = utc_now() + timedelta(hours=1)
    return store.plans.save(
        replace(STORED, study_id=study_id, objective=objective, created_at=later)
    )


def test_noise_scale_is_that_of_the_data_that_the_plan_was_found_with(db):
    """The advice for a set of one's own used the scale of the generated one."""
    with Store.open(db) as store:
        plan_id = save_with_trials(store, data="/data/photos")
        save_noise(store, 312.0, None)
    worth = plans.get(plan_id, db=db).worth
    assert worth.batches is None
    assert "with these data has measured the noise scale" in worth.batches_unknown
    with Store.open(db) as store:
        save_noise(store, 96.0, "/data/photos")
        for _ in range(plans._RECENT_TRAININGS):  # which hid that of these data
            save_noise(store, 312.0, None)
    assert plans.get(plan_id, db=db).worth.batches.measured.noise.scale == 96.0


def test_noise_scale_is_that_of_the_use_case_that_the_plan_was_found_for(db):
    """A use case that was changed since had advised on batches of the one of before."""
    with Store.open(db) as store:
        plan_id = save_with_trials(store)
        save_noise(store, 96.0, None, use_case="elsewhere/simplebig.py:Case")
        save_noise(store, 312.0, None, use_case_digest="sha256:changed")
        save_noise(store, 312.0, None, use_case_digest=None)  # of an earlier release
    assert plans.get(plan_id, db=db).worth.batches.measured.noise.scale == 96.0


def test_a_plan_that_was_chosen_by_a_noise_scale_has_advice_before_any_training(db):
    """`plans show` said that no training had measured the scale that it showed as objective."""
    with Store.open(db) as store:
        plan_id = save_with_trials(store, objective=OBJECTIVE)
    worth = plans.get(plan_id, db=db).worth
    assert worth.batches_unknown is None
    said = "96.0 (80.0 to 120) samples after 100 steps of the search's short training"
    assert said in worth_text(worth, Terminal(width=200))
    with Store.open(db) as store:
        save_noise(store, 312.0, None)
    assert plans.get(plan_id, db=db).worth.batches.measured.noise.scale == 312.0


def test_a_study_teaches_what_its_settings_do(db):
    with Store.open(db) as store:
        study_id = store.studies.get_or_create(STUDY)
        for one in TRIALS[:-1]:
            store.studies.add_trial(study_id, one.result)
    found = studies.get(study_id, db=db)
    assert found.best is not None
    assert found.best.result.plan == TRIALS[6].result.plan
    assert studies.learn(found) == []  # the machine was never probed
    with Store.open(db) as store:
        store.machines.save_probe(NODE)
    settings = {one.setting for one in studies.learn(studies.get(study_id, db=db))}
    assert {"memory_format", "node_batch"} <= settings
    assert len(studies.get(study_id, most_trials=2, db=db).trials) == 2


def test_names_are_found_through_the_api_too(db):
    save(db, {"use_case": "cases/keywords.py:Keywords"})
    assert [found.kind for found in names.find("keywords", db=db)] == ["plan"]
    assert names.find_use_cases(db=db) == ["cases/keywords.py:Keywords"]


def save_hosts(db):
    """Store two hosts of equal hardware, a plan of each, and the network between them."""
    hosts, mark = ("n1", "n2"), NODE.fingerprint()
    found_here = {"fingerprint": mark, "software": current_software()}
    save(db, *({"node": host, **found_here} for host in hosts))
    with Store.open(db) as store:
        for host in hosts:
            store.machines.save_probe(replace(NODE, node=host))
        measured = network(2, fingerprints=(mark, mark), sums=(sum_time(),)).measured
        store.machines.save_links(measured)


def test_hosts_of_equal_hardware_are_predicted_by_plans_of_their_own(db):
    """The story: all of them had the plan of the one whose name comes last."""
    save_hosts(db)
    found = together.predict(db=db)
    assert [plan.stored.node for plan in found.plans] == ["n1", "n2"]


def test_damaged_plans_are_no_reason_that_is_shown_to_everybody(db):
    """The story: a page showed the path of the database, and the API answered with 200."""
    save_hosts(db)
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE plans SET throughput = '[1]'")
    with pytest.raises(StoreCorruptError):
        together.predict(db=db)

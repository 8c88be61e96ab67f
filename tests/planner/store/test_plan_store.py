"""Plans are read back unchanged; the best one is the fastest whose evidence holds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
import sample_plan
from sample_plan import NOON, SOFTWARE
from store_cases import STUDY, trial

from planner.errors import NoPlanError, StoreCorruptError
from planner.plans.stored_plan import stale_reasons
from probes.timing import Interval

FOUND = replace(sample_plan.FOUND, speedup=Interval(median=2.02, low=1.97, high=2.06, count=20))


def speed(median, half=0.5, **changes):
    interval = Interval(median=median, low=median - half, high=median + half, count=9)
    return replace(FOUND, throughput_samples_per_s=interval, **changes)


def best(store, use_case="simplebig", *, software=SOFTWARE, fingerprint=None, node="vm"):
    return store.plans.best(use_case, software=software, fingerprint=fingerprint, node=node)


def test_plans_come_back_as_they_were(store):
    study_id = store.studies.get_or_create(STUDY)
    whole = replace(FOUND, study_id=study_id, peak_device_memory_bytes=9 * 2**30)
    bare = replace(FOUND, speedup=None, baseline=None, peak_memory_bytes=None)
    bare = replace(bare, step_time=None, gradient_bytes=None, begins_early=None)
    first, second = store.plans.save(whole), store.plans.save(bare)
    assert store.plans.get(first) == replace(whole, id=first)
    assert store.plans.get(second) == replace(bare, id=second)
    assert [plan.id for plan in store.plans.find()] == [first, second]


def test_plans_are_chosen_by_use_case_and_node(store):
    store.plans.save(FOUND)
    store.plans.save(replace(FOUND, node="other"))
    store.plans.save(replace(FOUND, use_case="complexsmall", use_case_digest="sha256:dd"))
    assert [plan.id for plan in store.plans.find("simplebig")] == [1, 2]
    assert [plan.id for plan in store.plans.find(node="vm")] == [1, 3]
    assert store.plans.find("nothing") == []


def test_brief_plans_are_read_without_what_is_longest_of_them(store, database):
    whole = replace(FOUND, id=store.plans.save(FOUND))
    brief = replace(whole, step_time=None, comparisons=())
    assert store.plans.find() == [whole]
    database.execute("UPDATE plans SET comparisons = '[7]'")  # which cannot be read
    assert store.plans.find("simplebig", brief=True) == [brief]


def test_plans_of_an_equal_use_case_elsewhere_are_its_own(store):
    """It was known by its path: copied to another folder it had no plans."""
    here, copy, changed = "/here/a.py:Case", "/copy/a.py:Case", "/changed/a.py:Case"
    store.plans.save(replace(FOUND, use_case=here))
    store.plans.save(replace(FOUND, use_case=copy))
    store.plans.save(replace(FOUND, use_case=changed, use_case_digest="sha256:dd"))
    store.plans.save(replace(FOUND, use_case="/old/a.py:Case", use_case_digest=None))
    assert [plan.id for plan in store.plans.find(here)] == [1, 2]
    assert [plan.id for plan in store.plans.find("/old/a.py:Case")] == [4]
    assert store.plans.find_namesakes("/new/b.py:Case") == {"sha256:cc": copy, "sha256:dd": changed}
    for other in ("/new/b.py:Base_Case", "/new/b.py:C_se", "/new/b.py:%", "/new/b.py:case", "Case"):
        assert store.plans.find_namesakes(other) == {}


def test_a_plan_that_is_not_there_is_one_error(store):
    for plan_id in [0, -1, 7, 2**31, 2**63 - 1, 2**63, 10**30]:
        with pytest.raises(NoPlanError, match=f"no plan {plan_id}: .*plans list"):
            store.plans.get(plan_id)
        with pytest.raises(NoPlanError):
            store.plans.remove(plan_id)


def test_the_number_of_a_removed_plan_is_never_given_again(store):
    first = store.plans.save(FOUND)
    store.plans.remove(first)
    assert store.plans.find() == []
    assert store.plans.save(FOUND) == first + 1


def test_a_plan_that_cannot_be_read_can_be_removed(store, database):
    """The story: it was read first, so that a list of plans was an error for ever."""
    store.plans.save(FOUND)
    database.execute("UPDATE plans SET comparisons = '[7]'")
    whole = replace(FOUND, id=store.plans.save(FOUND))
    for read in (store.plans.find, lambda: store.plans.get(1)):
        with pytest.raises(StoreCorruptError, match=r"\(plans 1: .*\): .* ddlplan plans rm 1, "):
            read()
    store.plans.remove(1)
    assert store.plans.find() == [whole]


def test_removing_a_plan_keeps_its_trials(store):
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, trial(0))
    store.plans.remove(store.plans.save(replace(FOUND, study_id=study_id)))
    assert len(store.studies.trials(study_id)) == 1


def test_the_best_plan_is_the_fastest_on_this_hardware(store):
    for plan in (speed(40), speed(50), speed(45), speed(90, fingerprint="sha256:bb")):
        store.plans.save(plan)
    assert best(store, fingerprint="sha256:aa").id == 2
    assert best(store, fingerprint="sha256:cc", node="other") is None
    assert best(store, use_case="complexsmall") is None


def test_a_nodes_own_plan_comes_before_a_faster_one_of_equal_hardware(store):
    store.plans.save(speed(40))
    store.plans.save(speed(50, node="twin"))
    assert best(store, fingerprint="sha256:aa").id == 1
    assert best(store, fingerprint="sha256:aa", node="other").id == 2
    newer = SOFTWARE | {"torch": "2.99.0"}
    store.plans.save(speed(30, node="twin", software=newer))
    assert best(store, fingerprint="sha256:aa", software=newer).id == 3


def test_of_plans_that_no_interval_tells_apart_the_latest_is_best(store):
    later = NOON + timedelta(days=1)
    for plan in (speed(50), speed(49.8, created_at=later), speed(47, created_at=later)):
        store.plans.save(plan)
    assert best(store).id == 2


def test_a_plan_whose_evidence_holds_comes_before_a_faster_stale_one(store):
    store.plans.save(speed(50, software=SOFTWARE | {"torch": "2.14.1"}))
    store.plans.save(speed(40))
    assert best(store).id == 2
    store.plans.remove(2)
    assert best(store).id == 1


def test_a_later_plan_of_a_study_supersedes_a_faster_one(store):
    """A machine that had become slower, or a smaller batch: launch still took the old plan."""
    study_id = store.studies.get_or_create(STUDY)
    for plan in (speed(50), speed(40)):
        store.plans.save(replace(plan, study_id=study_id))
    assert best(store).id == 2
    store.plans.save(speed(45))
    store.plans.save(replace(speed(42), study_id=store.studies.begin_afresh(STUDY)))
    assert best(store).id == 3


def test_a_plan_in_bf16_is_best_only_where_none_keeps_the_numerics(store):
    store.plans.save(speed(90, plan=replace(FOUND.plan, precision="bf16")))
    assert best(store).id == 1
    store.plans.save(speed(40))
    assert best(store).id == 2


def test_the_best_plan_of_a_node_that_changed_is_found_but_stale(store):
    store.plans.save(FOUND)
    found = best(store, fingerprint="sha256:new")
    assert found.id == 1
    assert stale_reasons(found, fingerprint="sha256:new", software=SOFTWARE)


@pytest.mark.parametrize(
    ("fingerprint", "software", "reasons"),
    [
        ("sha256:aa", SOFTWARE, ()),
        (None, SOFTWARE, ()),
        ("sha256:aa", SOFTWARE | {"torch": "2.15.9+cpu"}, ()),
        ("sha256:aa", SOFTWARE | {"python": "3.13.0"}, ()),
        ("sha256:aa", {}, ()),
        ("sha256:bb", SOFTWARE, ("made on other hardware",)),
        (
            "sha256:aa",
            SOFTWARE | {"torch": "2.16.0"},
            ("made with torch 2.15.0, here is 2.16.0",),
        ),
        (
            "sha256:bb",
            SOFTWARE | {"ddlplan": "0.1.1"},
            ("made on other hardware", "made with ddlplan 0.1.0, here is 0.1.1"),
        ),
    ],
)
def test_a_plan_is_stale_on_other_hardware_torch_or_ddlplan(fingerprint, software, reasons):
    assert stale_reasons(FOUND, fingerprint=fingerprint, software=software) == reasons

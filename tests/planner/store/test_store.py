"""Saved values are read back unchanged, and evidence is never lost."""

from __future__ import annotations

import ast
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import sample_plan
from sample_plan import NOON, SOFTWARE

import planner
from planner.errors import NoDatabaseError, NoPlanError, StoreCorruptError, StoreUrlError
from planner.plans.stored_plan import stale_reasons
from planner.store import Store
from planner.store.rows import trial_columns, trial_from_row
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import Study
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Interval, Measurement

FOUND = replace(sample_plan.FOUND, speedup=Interval(median=2.02, low=1.97, high=2.06, count=20))
STUDY = Study(
    use_case="simplebig",
    node="vm",
    fingerprint="sha256:aa",
    precision="fp32",
    software=SOFTWARE,
    data="photos sha256:dd",
    seed=0,
)
PLAN = FOUND.plan
GOOD = TrialResult(
    plan=PLAN,
    role=Role.SEARCH,
    outcome=Outcome.OK,
    measurement=Measurement(warmup_s=(9.1, 3.2), samples_s=(3.0, 0.1 + 0.2, 3.1)),
    peak_memory_bytes=5 * 2**30,
    elapsed_s=21.5,
    parameters={"processes.count": 2, "processes.share": 0.1, "format": "nhwc", "pin": True},
)
FAILED = TrialResult(
    plan=PLAN,
    role=Role.SEARCH,
    outcome=Outcome.CRASH,
    reason="worker 1 of 2 ended with exit code 1",
    log_tail="Traceback ...\n\x1b[31mValueError: \udc80\0",
    elapsed_s=2.5,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "planner.db"


@pytest.fixture
def store(database):
    with Store.open(database.url, now=lambda: NOON) as store:
        yield store


def speed(median, half=0.5, **changes):
    interval = Interval(median=median, low=median - half, high=median + half, count=9)
    return replace(FOUND, throughput_samples_per_s=interval, **changes)


def test_turns_that_were_disturbed_come_back_and_trials_of_earlier_releases_have_none(store):
    turn = DisturbedTurn(
        round=3, was_repeated=True, disturbance=Disturbance(others_cores=0.8, waiting_share=0.5)
    )
    measured = Measurement(samples_s=(3.0, 3.1), rounds=(2, 4), disturbed=(turn,))
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, replace(GOOD, measurement=measured))
    (stored,) = store.studies.trials(study_id)
    assert stored.result.measurement == measured
    row = trial_columns(stored.result) | {"id": 1, "study_id": 1, "number": 0, "created_at": NOON}
    del row["measurement"]["disturbed"]
    assert trial_from_row(row).result.measurement == replace(measured, disturbed=())


def test_trials_come_back_as_they_were_with_every_sample(store):
    study_id = store.studies.get_or_create(STUDY)
    added = [store.studies.add_trial(study_id, result) for result in (GOOD, FAILED)]
    first, second = store.studies.trials(study_id)
    assert [first.id, second.id] == [one.id for one in added]
    assert [first.number, second.number] == [one.number for one in added] == [0, 1]
    assert first.created_at == NOON
    assert first.result == GOOD
    assert second.result == replace(FAILED, log_tail=second.result.log_tail)


def test_what_no_database_can_hold_is_kept_as_a_visible_escape(store):
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, FAILED)
    (trial,) = store.studies.trials(study_id)
    assert trial.result.log_tail == "Traceback ...\n\x1b[31mValueError: \\udc80\\x00"


def test_the_same_command_goes_on_with_its_study(database):
    with Store.open(database.url) as store:
        first = store.studies.get_or_create(STUDY)
        store.studies.add_trial(first, GOOD)
    with Store.open(database.url) as store:
        again = store.studies.get_or_create(replace(STUDY, software=dict(SOFTWARE)))
        assert again == first
        assert [trial.result for trial in store.studies.trials(again)] == [GOOD]


@pytest.mark.parametrize(
    "change",
    [
        {"node": "other"},
        {"fingerprint": "sha256:bb"},
        {"precision": "auto"},
        {"data": "photos sha256:ee"},
        {"software": SOFTWARE | {"torch": "2.15.1"}},
        {"software": SOFTWARE | {"ddlplan": "0.2.0"}},
        {"software": SOFTWARE | {"python": "3.12.1"}},
    ],
)
def test_other_hardware_software_or_data_is_another_study(store, change):
    assert store.studies.get_or_create(STUDY) != store.studies.get_or_create(
        replace(STUDY, **change)
    )


@pytest.mark.parametrize(
    "change",
    [{"seed": 7}, {"software": SOFTWARE | {"python": "3.11.9"}}, {"use_case": "/copy.py:Case"}],
)
def test_a_seed_a_bug_fix_release_of_python_or_another_folder_goes_on_with_the_study(store, change):
    assert store.studies.get_or_create(STUDY) == store.studies.get_or_create(
        replace(STUDY, **change)
    )


def test_a_fresh_study_starts_empty_and_keeps_the_evidence_of_the_old_one(store):
    old = store.studies.get_or_create(STUDY)
    store.studies.add_trial(old, GOOD)
    fresh = store.studies.begin_afresh(STUDY)
    assert store.studies.trials(fresh) == []
    assert store.studies.get_or_create(STUDY) == fresh
    assert [trial.result for trial in store.studies.trials(old)] == [GOOD]


def test_trials_up_to_the_end_of_a_search_are_finished(store):
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, GOOD)
    assert store.studies.count_finished_trials(study_id) == 0
    store.plans.save(replace(FOUND, study_id=study_id))
    assert store.studies.count_finished_trials(study_id) == 0
    store.plans.save(replace(FOUND, study_id=study_id), ends_search=True)
    assert store.studies.count_finished_trials(study_id) == 1
    store.studies.add_trial(study_id, FAILED)
    assert store.studies.count_finished_trials(study_id) == 1
    store.plans.end_without_plan(study_id)
    assert store.studies.count_finished_trials(study_id) == 2
    assert store.studies.count_finished_trials(store.studies.begin_afresh(STUDY)) == 0


def test_trials_of_all_studies_are_chosen_by_use_case_and_node(store):
    other = replace(STUDY, use_case="complexsmall", data="photos sha256:ee")
    for study in (STUDY, replace(STUDY, node="other"), other):
        store.studies.add_trial(store.studies.get_or_create(study), GOOD)
    assert len(store.studies.all_trials()) == 3
    assert [trial.study_id for trial in store.studies.all_trials("simplebig")] == [1, 2]
    assert [trial.study_id for trial in store.studies.all_trials("simplebig", "other")] == [2]


def test_a_trial_of_no_study_is_not_kept(store):
    with pytest.raises(StoreCorruptError, match=r"(?i)foreign key"):
        store.studies.add_trial(99, GOOD)
    assert store.studies.all_trials() == []


def test_plans_come_back_as_they_were(store):
    study_id = store.studies.get_or_create(STUDY)
    whole = replace(FOUND, study_id=study_id)
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


def test_trials_of_an_equal_use_case_elsewhere_are_its_own(store):
    for place in ("/here/a.py:Case", "/copy/a.py:Case"):
        study = replace(STUDY, use_case=place, precision=f"for {place}")
        store.studies.add_trial(store.studies.get_or_create(study), GOOD)
    assert len(store.studies.all_trials("/here/a.py:Case")) == 2
    assert len(store.studies.find_for_use_case("/new/a.py:Case", "vm")) == 2


@pytest.mark.parametrize("plan_id", [0, -1, 7, 2**31, 2**63 - 1, 2**63, 10**30])
def test_a_plan_that_is_not_there_is_one_error(store, plan_id):
    with pytest.raises(NoPlanError, match=f"no plan {plan_id}: .*plans list"):
        store.plans.get(plan_id)
    with pytest.raises(NoPlanError):
        store.plans.remove(plan_id)


def test_the_number_of_a_removed_plan_is_never_given_again(store):
    first = store.plans.save(FOUND)
    store.plans.remove(first)
    assert store.plans.find() == []
    assert store.plans.save(FOUND) == first + 1


def test_removing_a_plan_keeps_its_trials(store):
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, GOOD)
    store.plans.remove(store.plans.save(replace(FOUND, study_id=study_id)))
    assert len(store.studies.trials(study_id)) == 1


def test_the_best_plan_is_the_fastest_on_this_hardware(store):
    for plan in (speed(40), speed(50), speed(45), speed(90, fingerprint="sha256:bb")):
        store.plans.save(plan)
    assert store.plans.best("simplebig", software=SOFTWARE, fingerprint="sha256:aa").id == 2
    assert store.plans.best("simplebig", software=SOFTWARE, fingerprint="sha256:cc") is None
    assert store.plans.best("complexsmall", software=SOFTWARE) is None


def test_a_nodes_own_plan_comes_before_a_faster_one_of_equal_hardware(store):
    store.plans.save(speed(40))
    store.plans.save(speed(50, node="twin"))
    fingerprint = {"fingerprint": "sha256:aa"}
    assert store.plans.best("simplebig", software=SOFTWARE, node="vm", **fingerprint).id == 1
    assert store.plans.best("simplebig", software=SOFTWARE, node="other", **fingerprint).id == 2
    newer = SOFTWARE | {"torch": "2.99.0"}
    store.plans.save(speed(30, node="twin", software=newer))
    assert store.plans.best("simplebig", software=newer, node="vm", **fingerprint).id == 3


def test_of_plans_that_no_interval_tells_apart_the_latest_is_best(store):
    later = NOON + timedelta(days=1)
    for plan in (speed(50), speed(49.8, created_at=later), speed(47, created_at=later)):
        store.plans.save(plan)
    assert store.plans.best("simplebig", software=SOFTWARE).id == 2


def test_a_plan_whose_evidence_holds_comes_before_a_faster_stale_one(store):
    store.plans.save(speed(50, software=SOFTWARE | {"torch": "2.14.1"}))
    store.plans.save(speed(40))
    assert store.plans.best("simplebig", software=SOFTWARE).id == 2
    store.plans.remove(2)
    assert store.plans.best("simplebig", software=SOFTWARE).id == 1


def test_a_later_plan_of_a_study_supersedes_a_faster_one(store):
    """A machine that had become slower, or a smaller batch: launch still took the old plan."""
    study_id = store.studies.get_or_create(STUDY)
    for plan in (speed(50), speed(40)):
        store.plans.save(replace(plan, study_id=study_id))
    assert store.plans.best("simplebig", software=SOFTWARE).id == 2
    store.plans.save(speed(45))
    store.plans.save(replace(speed(42), study_id=store.studies.begin_afresh(STUDY)))
    assert store.plans.best("simplebig", software=SOFTWARE).id == 3


def test_a_plan_in_bf16_is_best_only_where_none_keeps_the_numerics(store):
    store.plans.save(speed(90, plan=replace(PLAN, precision="bf16")))
    assert store.plans.best("simplebig", software=SOFTWARE).id == 1
    store.plans.save(speed(40))
    assert store.plans.best("simplebig", software=SOFTWARE).id == 2


def test_the_best_plan_of_a_node_that_changed_is_found_but_stale(store):
    store.plans.save(FOUND)
    best = store.plans.best("simplebig", software=SOFTWARE, fingerprint="sha256:new", node="vm")
    assert best.id == 1
    assert stale_reasons(best, fingerprint="sha256:new", software=SOFTWARE)


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


def test_a_path_and_a_url_name_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Store.open("a b#?%41.db") as store:
        store.plans.save(FOUND)
    for url in ("sqlite:///a b#?%41.db", f"sqlite:///{tmp_path}/a b#?%41.db"):
        with Store.open(url, create=False) as store:
            assert len(store.plans.find()) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["a b#?%41.db"]


@pytest.mark.parametrize(
    "url",
    [
        *("", "sqlite:///", ":memory:", "sqlite://", "a\0b", "mysql://x/y"),
        *("postgresql+psycopg2://ann@host/db", "postgresql://ann@host:port/db"),
    ],
)
def test_a_url_that_names_no_database_is_refused(url):
    with pytest.raises(StoreUrlError, match="use "):
        Store.open(url)


@pytest.mark.parametrize(
    "url",
    [
        "oracle://ann:secret@host/db",
        "postgresql://ann:secret@host/db",
        "postgresql+psycopg://ann:secret/@host/db",
        "postgresql+psycopg://host/db?user=ann&password=secret",
        "postgresql://ann:se/cret:secret@host:port/db",
    ],
)
def test_a_password_in_a_url_is_refused_and_never_repeated(url):
    for use in (Store.open, Store.check_location, Store.find_hazard):
        with pytest.raises(StoreUrlError) as refused:
            use(url)
        assert "secret" not in str(refused.value)
        assert refused.value.__cause__ is None


def test_a_documents_text_comes_back_whatever_is_in_it(store):
    odd = {
        "text": "\0 \udc80 \ud83d \u00e9 'a' \\ %s %(a)s :b",
        "number": 2**53 + 1,
        "real": 1e-310,
    }
    study_id = store.studies.get_or_create(STUDY)
    store.studies.add_trial(study_id, replace(GOOD, parameters=odd))
    (trial,) = store.studies.trials(study_id)
    assert trial.result.parameters == odd


def test_texts_are_in_the_order_of_their_bytes(store):
    """A server sorts by its language, which may skip the marks of a time and ignore case."""
    for name in ("b", "B", "a-b", "ab", "\u00e9", "a b", "_"):
        store.studies.get_or_create(replace(STUDY, node=name))
    names = [machine.name for machine in store.catalog.machines()]
    assert names == ["B", "_", "a b", "a-b", "ab", "b", "\u00e9"]


def test_opening_to_read_makes_no_database(path, tmp_path):
    with pytest.raises(NoDatabaseError, match="ddlplan tune makes one"):
        Store.open(str(path), create=False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_no_database_to_read_and_becomes_one_to_write(path):
    path.touch()
    with pytest.raises(NoDatabaseError):
        Store.open(str(path), create=False)
    assert path.stat().st_size == 0
    with Store.open(str(path)) as store:
        assert store.plans.find() == []


def test_only_the_store_imports_sqlalchemy():
    folder = Path(planner.__file__).parent
    others = [file for file in folder.rglob("*.py") if folder / "store" not in file.parents]
    for file in others:
        for statement in ast.walk(ast.parse(file.read_text())):
            if isinstance(statement, ast.Import):
                imported = [alias.name for alias in statement.names]
            elif isinstance(statement, ast.ImportFrom):
                imported = [statement.module or ""]
            else:
                continue
            assert not any(name.partition(".")[0] == "sqlalchemy" for name in imported), file


def test_the_store_and_the_reports_do_not_import_torch():
    program = (
        "import sys, planner.store, planner.report.output, planner.plans.plan_file\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'optuna', 'numpy')))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

"""Things are found by a part of a name, whatever it holds, in every kind of table."""

from __future__ import annotations

from dataclasses import replace

from sample_plan import FOUND
from store_cases import STUDY
from training_samples import BEGUN, HOST, JOB
from worth_cases import NODE

from planner.store import name_search


def fill(store, name):
    """Store one of each kind with a name; give how many kinds there are."""
    store.machines.save_probe(replace(NODE, node=name))
    store.studies.get_or_create(replace(STUDY, use_case=name, node="n", data=name))
    store.plans.save(replace(FOUND, use_case=name, node="n"))
    hosts = (replace(HOST, host=name),)
    store.trainings.add(replace(BEGUN, use_case="u", hosts=hosts, machine="n"))
    store.jobs.add(replace(JOB, machine="n", title=f"ddlplan tune --use-case={name}"))


def kinds(store, text):
    return sorted(found.kind for found in store.names.find(text, most=10))


def test_every_kind_of_thing_is_found_whatever_the_case_of_its_letters(store):
    fill(store, "cases/Keywords.py:Keywords")
    assert kinds(store, "keyWORDS") == ["job", "machine", "plan", "study", "training"]
    assert kinds(store, "other") == []


def test_letters_beyond_ascii_are_found_in_any_case_too(store, monkeypatch):
    """The story: a database knows the case of ASCII's letters alone."""
    monkeypatch.setattr(name_search, "_AT_ONCE", 1)
    for name in ("Émile's Zug", "a mile"):
        fill(store, name)
    for text in ("éMILE", "Émile", "é"):
        assert kinds(store, text) == ["job", "machine", "plan", "study", "training"], text
    assert kinds(store, "êmile") == []


def test_characters_of_patterns_and_those_that_a_database_refuses_stand_for_themselves(store):
    fill(store, "plain")
    for text in ["%", "_", "/", "'", '"', "\\", "\0", "\udcff"]:
        assert "plan" not in kinds(store, text)
        store.plans.save(replace(FOUND, use_case=f"a{text}b", node="n"))
        assert "plan" in kinds(store, text)


def test_the_newest_come_first_and_no_more_than_asked_for(store):
    ids = [store.plans.save(replace(FOUND, use_case=f"case {n}", node="n")) for n in range(5)]
    assert [found.id for found in store.names.find("case", most=2)] == [ids[4], ids[3]]


def test_use_cases_of_plans_are_listed_once(store):
    for name in ("b", "a", "script:python a.py", "b"):
        store.plans.save(replace(FOUND, use_case=name))
    assert store.names.use_cases() == ["a", "b"]


def test_words_of_the_plans_of_hosts_are_no_names_of_trainings(store):
    """The story: "host", "sequential" or "fp32" found every training."""
    fill(store, "node7")
    for text in ["host", "plan_id", "sequential", "fp32"]:
        assert kinds(store, text) == []
    assert "training" in kinds(store, "NODE7")
    training = replace(BEGUN, use_case="hostess", machine="n", hosts=(HOST,))
    numbers = [store.trainings.add(training).id for _ in range(3)]
    assert [one.id for one in store.names.find("host", most=2)] == [numbers[2], numbers[1]]


def test_trainings_are_looked_through_in_parts_until_there_are_enough(store, monkeypatch):
    """All of them were read, of thousands of one use case too, where the newest are shown."""
    monkeypatch.setattr(name_search, "_AT_ONCE", 2)
    for case in ("hostess", "a", "hostess", "b", "c", "hostess", "d"):
        store.trainings.add(replace(BEGUN, use_case=case, machine="n", hosts=(HOST,)))
    for most, ids in ((2, [6, 3]), (9, [6, 3, 1])):
        assert [one.id for one in store.names.find("host", most=most)] == ids

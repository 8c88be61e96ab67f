"""A database by its address, opened to read or to write, and the texts that it can hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sample_plan import FOUND
from store_cases import STUDY, trial

from planner.errors import NoDatabaseError, StoreUrlError
from planner.store import Store, check_location, find_hazard


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
        # These were addresses or paths like any other, which errors repeat.
        "postgresql://group/ann:secret@host/db",
        "postgresql://host/db?user=ann&Password=secret",
        "postgresql://host/db?oauth_client_secret=secret",
        "postgresql://host/db?scram_client_key=secret",
        "postgresql:/ann:secret@host/db",
        "postgresql:ann:secret@host/db",
    ],
)
def test_a_password_in_a_url_is_refused_and_never_repeated(url):
    for use in (Store.open, check_location, find_hazard):
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
    store.studies.add_trial(study_id, replace(trial(0), parameters=odd))
    (stored,) = store.studies.trials(study_id)
    assert stored.result.parameters == odd


def test_texts_are_in_the_order_of_their_bytes(store):
    """A server sorts by its language, which may skip the marks of a time and ignore case."""
    for name in ("b", "B", "a-b", "ab", "\u00e9", "a b", "_"):
        store.studies.get_or_create(replace(STUDY, node=name))
    names = [machine.name for machine in store.catalog.machines()]
    assert names == ["B", "_", "a b", "a-b", "ab", "b", "\u00e9"]


def test_opening_to_read_makes_no_database_of_an_empty_file_either(path, tmp_path):
    with pytest.raises(NoDatabaseError, match="ddlplan tune makes one"):
        Store.open(str(path), create=False)
    assert list(tmp_path.iterdir()) == []
    path.touch()
    with pytest.raises(NoDatabaseError):
        Store.open(str(path), create=False)
    assert path.stat().st_size == 0
    with Store.open(str(path)) as store:
        assert store.plans.find() == []

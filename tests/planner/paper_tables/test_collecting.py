"""What a report reads: studies used last or of the data asked for, and every stored sweep."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from paper_cases import NODE
from store_cases import STUDY, trial
from sweep_samples import sample_point, sample_record
from worth_cases import FACTS

from planner.paper_tables import load_paper
from planner.paper_tables._collecting import collect
from planner.store import Store

PAPER = load_paper("lerat_2022")


@pytest.fixture
def db(tmp_path):
    """An older study of generated data that was used again after a newer one of photos."""
    path = str(tmp_path / "planner.db")
    with Store.open(path) as store:
        studies = {}
        for number, data in enumerate((None, "/photos", None), 1):
            facts = replace(FACTS, data=data, is_generated=data is None)
            study = replace(STUDY, data=data or "generated", facts=facts)
            studies[data] = store.studies.begin_search(study, fresh=False).study_id
            store.studies.add_trial(studies[data], trial(number))
    with closing(sqlite3.connect(path)) as database:  # times are stored in whole seconds
        database.execute("UPDATE trials SET created_at = '2099-01-01T00:00:00+00:00' WHERE id = 3")
        database.commit()
    return path, studies


def shown(db, **more):
    return collect([PAPER], db, {}, **more).of("simplebig")


def test_the_study_that_was_used_last_is_shown_and_others_are_counted(db):
    """`report --measure` went on with an old study, and the report showed the newest one."""
    path, studies = db
    (one,) = shown(path)
    assert (one.record.id, one.others) == (studies[None], 1)


def test_the_study_of_the_data_that_were_asked_for_is_shown(db):
    path, studies = db
    (one,) = shown(path, data={"simplebig": Path("/photos")})
    assert (one.record.id, one.data) == (studies["/photos"], "/photos")


def test_a_sweep_counts_however_many_newer_ones_there_are(tmp_path):
    """Beyond six, sweeps were not counted as not shown, and one of the data was made again."""
    mnist, path = load_paper("mnist_batches"), str(tmp_path / "planner.db")
    batches = (64, 512, 4096)
    record = replace(
        sample_record(batches), use_case="mnist_cnn", fingerprint=NODE.fingerprint(), data="/mnist"
    )
    with Store.open(path) as store:
        first = store.sweeps.begin(record, fresh=True).record.id
        for batch in batches:
            for setting in (0, 1):
                store.sweeps.add_points(first, sample_point(batch, setting))
        for _ in range(7):
            newer = store.sweeps.begin(replace(record, data=None), fresh=True).record.id
            store.sweeps.add_points(newer, sample_point(64))
    held = collect([mnist], path, {}, data={"mnist_cnn": Path("/mnist")})
    assert mnist.wanted(held, NODE) == []
    (table,) = mnist.tables(held)
    assert "mnist_cnn: other stored sweeps, not shown: 7." in table.notes
    assert {row["data"].text for row in table.rows[:-1]} == {"/mnist"}
    read = [one.record.id for one in held.swept("mnist_cnn") if "sweep" in vars(one)]
    assert read == [first]  # points of the others are not shown


def test_the_database_is_known_to_what_names_commands_for_it(db, tmp_path):
    path, _ = db
    empty = str(tmp_path / "none.db")
    assert [collect([PAPER], one, {}).db for one in (path, empty)] == [path, empty]

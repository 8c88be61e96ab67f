"""Use cases as plans know them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from sample_plan import FOUND
from store_cases import STUDY
from worth_cases import FACTS

from planner.api.use_cases import find_case_of_plan
from planner.errors import NoPlanError, UsageError
from planner.store import Store


@pytest.fixture
def case_of(db):
    """Store a plan of a use case; give what its number leads to."""

    def find(use_case: str) -> str:
        with Store.open(db) as store:
            number = store.plans.save(replace(FOUND, id=None, use_case=use_case))
        found, data = find_case_of_plan(number, db=db)
        assert data is None  # it was imported: no search of its own says with which
        return found

    return find


def test_plan_leads_to_its_use_case_where_that_lies(case_of, tmp_path):
    (tmp_path / "case.py").write_text("class Mine: ...\n")
    for name in ("simplebig", "mnist_cnn,lr=0.1", f"{tmp_path}/case.py:Mine", "lab.cases:Mine"):
        assert case_of(name) == name


def test_file_that_has_moved_is_one_line_that_names_the_option(case_of, tmp_path):
    place = f"{tmp_path}/gone/case.py"
    with pytest.raises(UsageError) as caught:
        case_of(f"{place}:Mine")
    assert str(caught.value) == (
        f"plan 1 is for {place}:Mine, and {place}: no such file or folder: say with --use-case "
        "where it lies now"
    )


def test_plan_of_a_script_leads_to_the_command_with_that(case_of, tmp_path):
    """It named no database: what was typed looked for plan 1 of the present folder."""
    with pytest.raises(UsageError) as caught:
        case_of("script:python train.py '{batch}'")
    line = f"ddlplan launch --plan 1 --db {tmp_path}/planner.db -- python train.py {{batch}}"
    assert str(caught.value) == f"plan 1 is of a script, which is run by {line}"


def test_plan_that_is_not_there_is_none(db):
    with pytest.raises(NoPlanError):
        find_case_of_plan(1, db=db)


def test_imported_plan_of_a_built_in_use_case_that_was_found_with_data_asks_for_them(db):
    """The story: `launch --plan 1` trained on drawn photos, and said nothing of --data."""
    photos = Path("/data/photos")
    for number, (use_case, is_generated) in enumerate(
        [("simplebig", True), ("lab.cases:Mine", False), ("mnist_cnn,lr=0.1", False)], 1
    ):
        plan = replace(FOUND, id=None, use_case=use_case, is_generated=is_generated)
        with Store.open(db) as store:
            assert store.plans.save(plan) == number
        assert find_case_of_plan(number, data=photos, db=db) == (use_case, photos)
    assert find_case_of_plan(1, db=db) == ("simplebig", None)
    assert find_case_of_plan(2, db=db) == ("lab.cases:Mine", None)
    with pytest.raises(UsageError) as caught:
        find_case_of_plan(3, db=db)
    assert str(caught.value) == (
        "plan 3 was found with data, and where they are is not imported with it: name them with "
        "--data"
    )


def test_plan_of_a_search_leads_to_the_data_too(db, tmp_path):
    """`launch --plan 3` would have trained on drawn photos what was tuned on the user's own."""
    with Store.open(db) as store:
        study_id = store.studies.get_or_create(
            replace(STUDY, facts=replace(FACTS, data="/data/photos"))
        )
        number = store.plans.save(replace(FOUND, id=None, use_case="simplebig", study_id=study_id))
    assert find_case_of_plan(number, db=db) == ("simplebig", Path("/data/photos"))
    assert find_case_of_plan(number, data=tmp_path, db=db) == ("simplebig", tmp_path)

"""Settings of a use case reach its constructor, typed, and belong to its name."""

import pytest

from launch.errors import UseCaseError
from launch.use_cases import make_workload, resolve

CASE = """
from __future__ import annotations
from pathlib import Path
from typing import Literal
from torch import nn

class Case:
    name = "set"

    def __init__(self, width: int = 3, lr: float = 0.1, deep: bool = False, kind: str = "a",
                 limit: int | None = None, plain=0.5, data: Path | None = None, shapes=(1, 2)):
        self.given = (width, lr, deep, kind, limit, plain)
        self.data = data
        if width < 1:
            raise ValueError("width is too small")

    def model(self):
        return nn.Linear(1, 1)
    def dataset(self, data, *, train):
        return []
    def loss(self, output, target):
        return output.mean()
    def optimizer(self, parameters):
        return None

case = Case()
"""


@pytest.fixture
def case(tmp_path):
    file = tmp_path / "set_case.py"
    file.write_text(CASE)
    return f"{file}:Case"


def load(case, *settings, data=None):
    return resolve(make_workload(case, settings=settings).use_case).load(data)


def message(case, *settings):
    with pytest.raises(UseCaseError) as error:
        load(case, *settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_settings_are_typed_by_the_signature(case):
    settings = ["width=7", "lr=1e-3", "deep=yes", "kind=b c,d:e/f=g", "limit=4", "plain=2"]
    assert load(case, *settings).subject.given == (7, 0.001, True, "b c,d:e/f=g", 4, 2.0)
    assert load(case, "limit=none").subject.given == (3, 0.1, False, "a", None, 0.5)


def test_settings_belong_to_the_name_in_one_spelling(case):
    workload = make_workload(case, settings=["width=7", "kind=b c,d"])
    assert workload.use_case == f"{case},kind=b%20c%2Cd,width=7"
    assert make_workload(f"{case},width=7", settings=["kind=b c,d"]) == workload
    assert str(resolve(workload.use_case)) == workload.use_case


def test_a_use_case_without_settings_is_spelled_as_ever(case):
    assert make_workload("simplebig").use_case == "simplebig"
    assert make_workload(case).use_case == case


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("widht=7", "has no setting 'widht': did you mean width? there are width, lr, deep"),
        ("data=x", "has no setting 'data'"),
        ("width=7.5", "setting width='7.5': expected a whole number"),
        ("width=", "setting width='': expected a whole number"),
        ("lr=fast", "setting lr='fast': expected a number"),
        ("lr=nan", "setting lr='nan': expected a number"),
        ("deep=maybe", "setting deep='maybe': expected true or false"),
        ("limit=x", "setting limit='x': expected a whole number"),
        ("shapes=1", "setting shapes='1': expected none from a command line"),
        ("width", "setting 'width' of a use case: write key=value"),
        ("=3", "setting '=3' of a use case: write key=value"),
        ("kind=a\nb", "write a value of one line"),
    ],
)
def test_a_setting_that_does_not_fit_is_told(case, setting, said):
    assert said in message(case, setting)


def test_a_setting_that_is_given_twice_is_told(case):
    assert "setting 'lr' of a use case is given twice" in message(f"{case},lr=1", "lr=2")


def test_what_a_constructor_refuses_is_told(case):
    assert "fails: ValueError: width is too small" in message(case, "width=0")


def test_settings_of_an_instance_are_told(case):
    assert "which was made already" in message(case.replace(":Case", ":case"), "lr=1")


def test_a_constructor_that_asks_for_the_data_is_told_where_they_are(case, tmp_path):
    assert load(case, "lr=1", data=tmp_path).subject.data == tmp_path
    assert load(case).subject.data is None


def test_settings_of_a_use_case_that_takes_none_are_told():
    assert "has no setting 'lr': it takes none" in message("simplebig", "lr=1")


def test_settings_of_an_unknown_name_do_not_hide_that():
    with pytest.raises(UseCaseError, match="unknown use case 'simplebug': did you mean simplebig"):
        resolve("simplebug,lr=1")

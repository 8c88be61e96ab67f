"""Options of a job are those of its command, and nothing else reaches the command line."""

from __future__ import annotations

import pytest
import typer

from planner.cli.app import app
from planner.errors import UsageError
from planner.records.job_record import JobKind
from planner.supervision.options import MOST_CHARACTERS, NOT_FOR_JOBS, OPTIONS, make_arguments


@pytest.mark.parametrize("kind", JobKind)
def test_every_option_of_a_command_is_one_of_its_jobs(kind):
    command = typer.main.get_command(app).commands[str(kind)]
    known = {
        parameter.opts[-1].removeprefix("--").replace("-", "_"): parameter.is_flag
        for parameter in command.params
        if parameter.param_type_name == "option"  # the command line of a script is none
    }
    for name in ("db", *NOT_FOR_JOBS):
        known.pop(name, None)
    assert {name: kind is bool for name, kind in OPTIONS[kind].items()} == known


def test_each_option_is_one_word_with_its_value():
    request = {"use_case": "--db=elsewhere", "seed": 3, "fresh": True, "verbose": False}
    assert make_arguments(JobKind.TUNE, request) == [
        *("tune", "--use-case=--db=elsewhere", "--seed=3", "--fresh"),
    ]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"db": "elsewhere.db"}, "tune has no option 'db' for a job"),
        ({"json": True}, "no option 'json'"),
        ({"--fresh": True}, "no option '--fresh'"),
        ({"seed": "3"}, "expected a whole number"),
        ({"seed": True}, "expected a whole number"),
        ({"target": "low"}, "expected a number"),
        ({"fresh": 1}, "expected true or false"),
        ({"use_case": 3}, "expected a text"),
        ({"use_case": ""}, "expected a text"),
        ({"use_case": "two\nlines"}, "expected one line"),
        ({"use_case": "x" * (MOST_CHARACTERS + 1)}, "expected one line"),
        ({"use_case": "\x1b[31m"}, "expected one line"),
    ],
)
def test_anything_else_is_refused(request_, message):
    with pytest.raises(UsageError, match=message):
        make_arguments(JobKind.TUNE, request_)

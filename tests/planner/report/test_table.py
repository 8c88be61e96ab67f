"""Tables, facts and lines as wide as the terminal they are for, with commands to copy whole."""

from __future__ import annotations

import io
import os
import pty
import shlex
import subprocess
import time

import pytest

from planner.report.table import (
    Column,
    Terminal,
    WithCommand,
    detect_terminal,
    render_csv,
    render_facts,
    render_line,
    render_table,
)

COMMAND = "ddlplan launch -- env 'NOTE=two  words' python train.py --batch-size {batch}"


def test_csv_quotes_what_would_break_a_line():
    text = render_csv([{"a": 'say "hi", twice\n', "b": None}], ["a", "b"])
    assert text == 'a,b\r\n"say ""hi"", twice\n",\r\n'


def test_csv_of_rows_of_another_machine_has_no_control_characters():
    """A name with an escape sequence was obeyed by the terminal that showed the CSV."""
    text = render_csv([{"a": "\x1b]0;title\x07.py\rx\n\x9b2J"}], ["a"])
    assert text == 'a\r\n"\\x1b]0;title\\x07.py\\rx\n\\x9b2J"\r\n'


def test_csv_leaves_names_with_wide_and_non_breaking_spaces_as_they_are():
    """They came as ``\\u3000`` and ``\\xa0``, so that a program did not find the file again."""
    name = "データ\u3000集/net\u00a01.py"
    assert render_csv([{"a": name}], ["a"]) == f"a\r\n{name}\r\n"
    assert render_csv([{"a": "net\udcff.py"}], ["a"]) == "a\r\nnet\\udcff.py\r\n"


def test_wide_characters_take_two_places():
    columns = (Column(key="a", title="A"), Column(key="b", title="B"))
    table = render_table([{"a": "数据", "b": "x"}, {"a": "abcd", "b": "y"}], columns, Terminal())
    assert table.splitlines() == ["A     B", "数据  x", "abcd  y"]


def test_name_of_megabytes_of_another_machines_database_costs_no_more_than_itself():
    """A terminal's table was waited for for minutes, and every row of a pipe's was as long."""
    columns = (
        Column(key="a", title="A", may_cut=True, cuts_start=True),
        Column(key="b", title="B", may_cut=True),
    )
    long = "x" * 300_000
    rows = [{"a": f"{long}a", "b": f"b{long}"}, *[{"a": "1", "b": "2"}] * 20]
    began_s = time.process_time()
    table = render_table(rows, columns, Terminal(width=40))
    assert time.process_time() - began_s < 5
    assert table.splitlines()[1] == f"…{'x' * 17}a  b{'x' * 17}…"
    piped = render_table(rows, columns, Terminal())
    assert f"{long}a  b{long}\n" in piped
    assert len(piped) < 3 * len(long)


def test_path_is_copied_whole_however_narrow_the_terminal_is():
    path = "/home/someone/trainings/runs/2026-11-26-17/weights.safetensors"
    facts = render_facts([("weights", f"written to {path}")], Terminal(width=40))
    line = render_line(f"weights are in {path} now", Terminal(width=40))
    for text in (facts, line):
        assert path in text.split()


def test_command_on_several_lines_is_one_for_a_shell():
    text = render_facts([("stored", WithCommand("plan 1; next: ", COMMAND))], Terminal(width=40))
    assert text.splitlines() == [
        "stored  plan 1; next: ddlplan launch \\",
        "        -- env 'NOTE=two  words' \\",
        "        python train.py --batch-size \\",
        "        {batch}",
    ]
    typed = "\n".join(text.splitlines()).partition("next: ")[2]
    shown = subprocess.run(
        ["sh", "-c", typed.replace("ddlplan", r"printf '%s\n'", 1)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert shown == shlex.split(COMMAND)[1:]


def test_command_that_begins_on_a_line_of_its_own_has_no_sign_before_it():
    text = render_facts([("stored", WithCommand("plan 1; next:  ", COMMAND))], Terminal(width=28))
    assert text.splitlines()[:2] == ["stored  plan 1; next:", "        ddlplan launch -- \\"]


@pytest.mark.parametrize("terminal", [Terminal(), Terminal(width=200)])
def test_command_that_fits_or_goes_into_a_pipe_is_one_line(terminal):
    text = render_facts([("stored", WithCommand("plan 1; next: ", COMMAND))], terminal)
    assert text == f"stored  plan 1; next: {COMMAND}\n"


def test_long_line_goes_on_at_a_word_and_indented_on_a_terminal_alone():
    line = "  worker 0: cores 0,1, device cpu, threads 2"
    assert render_line(line, Terminal(width=30)).splitlines() == [
        "  worker 0: cores 0,1, device",
        "    cpu, threads 2",
    ]
    assert render_line(line, Terminal()) == f"{line}\n"
    address = "http://127.0.0.1:40000/sign-in?token=abcdefghijklmnop"
    assert render_line(address, Terminal(width=30)) == f"{address}\n"
    typed = render_line(WithCommand("", COMMAND), Terminal(width=40))
    assert typed.replace(" \\\n  ", " ") == f"{COMMAND}\n"


def test_long_values_go_on_below_themselves():
    text = render_facts([("name", "word " * 30)], Terminal(width=40))
    assert max(map(len, text.splitlines())) <= 40
    assert all(line.startswith("      word") for line in text.splitlines()[1:])


@pytest.mark.parametrize(
    ("environment", "color"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False)],
)
def test_a_terminal_has_a_width_and_colour_unless_told_otherwise(environment, color, monkeypatch):
    monkeypatch.setenv("COLUMNS", "72")
    controlling, terminal = pty.openpty()
    with os.fdopen(terminal, "w") as stream:
        assert detect_terminal(stream, environment) == Terminal(width=72, color=color)
    os.close(controlling)


def test_a_pipe_has_neither_width_nor_colour():
    assert detect_terminal(io.StringIO(), {}) == Terminal(width=None, color=False)

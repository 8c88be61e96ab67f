"""Scripts are read, and never run: their encodings, their options, and what is no training."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

import drafted_scripts

from planner.errors import UsageError
from planner.use_case_drafts.drafting import draft_use_case
from planner.use_case_drafts.options import Options, read_options
from planner.use_case_drafts.scope import Scope
from planner.use_case_drafts.writing import file_of, todos_of
from tests.planner.use_case_drafts.drafts import EXAMPLES, draft_of


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print(1", "train.py, line 1: no Python: '(' was never closed"),
        (
            "print(1)",
            "train.py: no for loop calls backward(): tune the script as it is: ddlplan tune --",
        ),
    ],
)
def test_what_is_no_training_is_refused_in_one_line(text, message, tmp_path):
    with pytest.raises(UsageError) as refused:
        draft_of(text, tmp_path)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("head", "encoding"), [("", "utf-8-sig"), ("# coding: cp1252", "cp1252")])
def test_script_is_read_in_the_encoding_in_which_python_reads_it(head, encoding, tmp_path):
    """The story: one with a byte order mark, as editors of Windows write it, was no Python."""
    script = tmp_path / "train.py"
    script.write_text(f"{head}\n# für Übungen{drafted_scripts.IN_FUNCTIONS}", encoding=encoding)
    assert todos_of(file_of(draft_use_case(script))) == []


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"", "invalid or missing encoding declaration"),
        (b"import torch\n\n", "'utf-8' codec can't decode byte 0xfc"),
    ],
)
def test_script_in_no_encoding_that_python_reads_is_refused_with_the_reason(head, why, tmp_path):
    """The story: of one with an umlaut of Latin-1 it was said "no Python: utf-8"."""
    script = tmp_path / "train.py"
    script.write_bytes(head + b"# f\xfcr\n")
    with pytest.raises(UsageError, match=f"train.py: no Python: {why}"):
        draft_use_case(script)


def test_two_optimizers_are_refused_by_name():
    with pytest.raises(UsageError, match=r"2 optimizers \(generator_optimizer, optimizer\)"):
        draft_use_case(EXAMPLES / "gan.py")


def test_a_script_is_never_executed(tmp_path):
    text = f"open({str(tmp_path / 'executed')!r}, 'w')\n" + drafted_scripts.AT_TOP_LEVEL
    draft_of(text, tmp_path)
    assert not (tmp_path / "executed").exists()


def test_functions_that_read_the_command_line_are_named_in_the_same_order_every_time():
    names = "abcdefgh"
    tree = ast.parse("".join(f"def {name}(): return parser.parse_args()\n" for name in names))
    body = ast.parse("\n".join(f"{name}()" for name in names)).body
    scope = Scope(tree, tree.body, Options(frozenset(), {}))
    (todo,) = scope.method("step", "", body, line=1).todo
    assert todo == f"{', '.join(names)}() reads the command line: put its values here"


@pytest.mark.parametrize(
    ("added", "defaults"),
    [
        ('add_argument("--amp", action="store_true")', {"amp": False}),
        ('add_argument("--amp", action="store_true", default=True)', {"amp": True}),
        ('add_argument("--amp", action="store_true", default=cuda.is_available())', {}),
        (
            'add_argument("--cuda", action="store_true")\n'
            'add_argument("--cpu", dest="cuda", action="store_false")',
            {"cuda": False},
        ),
        (
            'add_argument("--workers", default=os.cpu_count())\n'
            'add_argument("-j", dest="workers", default=2)',
            {},
        ),
        ('add_argument("--lr", default=0.1)\nset_defaults(lr=0.5)', {}),
    ],
)
def test_default_of_an_option_is_the_one_that_argparse_takes(added, defaults):
    """The story: a flag that is on by default was off, and of two for one thing the last one's."""
    known = read_options(ast.parse(added)).known
    assert {name: option.default for name, option in known.items()} == defaults

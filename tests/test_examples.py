"""Examples run as their users would run them, and are as short as was promised."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))
PAGE = (EXAMPLES / "README.md").read_text()
OPTIONS = ["--steps", "3", "--batch-size", "8", "--workers", "1"]
GUARD_S = 400


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments, *OPTIONS],
        cwd=EXAMPLES.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    try:
        out, err = process.communicate(timeout=GUARD_S)
    finally:
        process.kill()
    assert process.returncode == 0, err
    return out


@pytest.mark.long
def test_scripts_train_with_nothing_but_torch():
    """At once: most of their time they load torch. tests/launch/scripts runs gan.py."""
    plain = start("examples/plain_loop.py")
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    distributed = start(*torchrun, "examples/torchrun_ddp.py")
    ended = {process: end(process) for process in (plain, distributed)}
    assert re.fullmatch(r"step 3: loss \d\.\d{4}\n", ended[plain])
    # Under PYTHONUNBUFFERED the end of a line is written by itself: lines of two ranks can mix.
    lines = r"rank (\d) of 2, step 3: loss \d\.\d{4}"
    assert sorted(re.findall(lines, ended[distributed])) == ["0", "1"]


@pytest.mark.long
@pytest.mark.parametrize("file", ["accelerate_loop.py", "lightning_module.py", "hf_tiny.py"])
def test_scripts_train_with_other_libraries(file):
    last = end(start(f"examples/{file}")).splitlines()[-1]
    assert re.fullmatch(r"step 3: (validation )?loss \d+\.\d{4}", last)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_is_short_has_its_row_and_says_what_it_is(file):
    lines = file.read_text().splitlines()
    assert len(lines) < 60
    assert f"| [`{file.name}`]({file.name}) |" in PAGE
    assert ast.get_docstring(ast.parse(file.read_text()))


def test_every_use_case_that_the_page_names_is_there():
    named = re.findall(r"--use-case (?:lightning:|hf:)?examples/(\w+\.py):(\w+)", PAGE)
    assert len(named) == 5
    for file, name in named:
        tree = ast.parse((EXAMPLES / file).read_text())
        kinds = ast.ClassDef | ast.FunctionDef
        assert name in {node.name for node in tree.body if isinstance(node, kinds)}

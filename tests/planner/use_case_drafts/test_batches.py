"""Batch of a drafted use case: that of a step of the script's optimizer."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import indent

import pytest

sys.path.append(str(Path(__file__).parent))

import drafted_scripts

from tests.planner.use_case_drafts.drafts import EXAMPLES, draft_of


@pytest.mark.parametrize(
    ("condition", "batch", "todo"),
    [
        ("(number + 1) % PARTS == 0", 40, ""),
        ("(number + 1) % PARTS == 0 or number + 1 == len(loader)", 40, ""),
        ("(number + 1) % args.parts == 0", 10, r"batches of a step, .*: `if .*args.parts == 0`"),
        ("loss < 9", 10, r"if the script steps after several .*: `if loss < 9` in line \d+"),
    ],
)
def test_batch_is_that_of_a_step_where_the_script_adds_up_gradients(
    condition, batch, todo, tmp_path
):
    steps = "        optimizer.step()\n        scheduler.step()\n"
    script = drafted_scripts.AT_TOP_LEVEL.replace("WIDTH = 4", "WIDTH = 4\nPARTS = 4")
    script = script.replace("for batch in loader", "for number, batch in enumerate(loader)")
    assert steps in script
    script = script.replace(steps, f"        if {condition}:\n    {steps}")
    text = draft_of(script, tmp_path)
    assert f"default_batch = {batch}\n" in text
    assert bool(todo) == ("default_batch: " in text)
    assert re.search(todo, text)


@pytest.mark.parametrize(
    ("steps", "batch"),
    [
        ("if number % 9 == 0:\n    profiler.step()\noptimizer.step()", 10),
        ("optimizer.step()\nif number % 9:\n    continue\nprint(loss)", 10),
        (
            "if number % 9 == 0:\n    for p in trained.parameters():\n        continue\n"
            "optimizer.step()",
            10,
        ),
        ("if number % 9 == 0:\n    continue\noptimizer.step()", 10),
        ("if not number % 9 or loss > 9:\n    continue\noptimizer.step()", 10),
        ("if (number + 1) % 4:\n    continue\noptimizer.step()", 40),
        ("if not (number + 1) % 4 == 0:\n    continue\noptimizer.step()", 40),
        ("if (number + 1) % 4 == 0:\n    pass\nelse:\n    continue\noptimizer.step()", 40),
        ("if amp:\n    scaler.step(optimizer)\nelse:\n    optimizer.step()", 10),
        ("try:\n    optimizer.step()\nexcept RuntimeError:\n    raise", 10),
        ("with record('step'):\n    if (number + 1) % 4 == 0:\n        optimizer.step()", 40),
        ("try:\n    if (number + 1) % 4 == 0:\n        optimizer.step()\nfinally:\n    pass", 40),
        ("if (number + 1) % 4:\n    pass\nelse:\n    optimizer.step()", 40),
        ("if loss < 9:\n    if (number + 1) % 4 == 0:\n        optimizer.step()", 40),
        (
            "if amp:\n    if (number + 1) % 4 == 0:\n        scaler.step(optimizer)\n"
            "elif (number + 1) % 4 == 0:\n    optimizer.step()",
            40,
        ),
    ],
)
def test_only_a_condition_that_the_step_of_the_optimizer_depends_on_counts_batches(
    steps, batch, tmp_path
):
    """The story: a profiler's step with every 100th batch gave a default_batch of 3200.

    So did a batch in ten that is left out, which made one of ten times the size.
    """
    script = drafted_scripts.AT_TOP_LEVEL
    script = script.replace("for batch in loader", "for number, batch in enumerate(loader)")
    assert "        optimizer.step()\n" in script
    script = script.replace("        optimizer.step()\n", indent(f"{steps}\n", " " * 8))
    text = draft_of(script, tmp_path)
    assert f"default_batch = {batch}\n" in text
    assert "default_batch: " not in text


def test_steps_that_accelerate_counts_are_those_of_all_their_batches(tmp_path):
    script = (EXAMPLES / "accelerate_loop.py").read_text()
    more = script.replace(
        '"--accumulation", type=int, default=2', '"--accumulation", type=int, default=4'
    )
    assert more != script
    batches = [
        int(re.search(r"default_batch = (\d+)", draft_of(one, tmp_path))[1])
        for one in (script, more)
    ]
    assert batches == [64, 128]

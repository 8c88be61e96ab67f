"""`ddlplan tune --precision`: what is said where nothing is offered."""

from __future__ import annotations

from pathlib import Path

import pytest

# Nothing in it can be faster in bf16, on any machine.
NO_PRODUCTS = f"{Path(__file__).parents[2] / 'launch/cases/precision_cases.py'}:NoProducts"


@pytest.mark.long
def test_what_is_left_out_is_a_warning_and_fp32_is_measured(tuned):
    arguments = ("--use-case", NO_PRODUCTS, "--precision", "auto", "--budget", "5m")
    ended = tuned.run("tune", *arguments, "--trials", 0, "--epochs", 3, "--json")
    assert ended.code == 0, ended.err
    warnings = ended.document["warnings"]
    assert [text for text in warnings if text.startswith("bf16 is not offered: ")]
    assert [text for text in warnings if text.startswith("bf16_internal is not offered: ")]
    data = ended.document["data"]
    assert data["plan"]["precision"] == "fp32"
    assert data["fp32"] is None
    assert data["compile_s"] is None
    assert data["epochs"] == 3

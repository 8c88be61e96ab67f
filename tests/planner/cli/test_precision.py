"""`ddlplan tune --precision`: what is offered, what is said where nothing is."""

from __future__ import annotations

from pathlib import Path

import pytest

# Nothing in it can be faster in bf16, on any machine.
NO_PRODUCTS = f"{Path(__file__).parents[2] / 'launch/cases/precision_cases.py'}:NoProducts"


@pytest.mark.long
def test_bf16_alone_where_it_is_no_good_is_no_plan_and_leaves_nothing_behind(ddlplan):
    arguments = ("tune", "--use-case", NO_PRODUCTS, "--precision", "bf16", "--budget", "60s")
    ended = ddlplan.run(*arguments, "--json")
    assert ended.code == 3, ended.err
    error = ended.document["error"]
    assert error["message"].startswith("bf16 is not offered: there is no convolution")
    assert error["message"].endswith("use --precision fp32")
    assert ddlplan.listing() == []


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


@pytest.mark.long
def test_strategy_that_was_named_and_cannot_run_here_is_an_error(ddlplan, cases):
    """Only on a machine without a GPU is there a strategy that cannot run."""
    from probes.node import probe

    if probe(quick=True).gpus:
        pytest.skip("gpu_data can run here: there is a GPU")
    ended = ddlplan.run("tune", "--use-case", f"{cases}:Steady", "--strategies", "threads,gpu_data")
    assert ended.code == 3
    assert "gpu_data: no usable GPU" in ended.errors[0]
    assert ddlplan.listing() == []

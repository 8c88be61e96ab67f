"""``ddlplan compare --hosts``: peers and our job take turns on two hosts."""

from __future__ import annotations

import pytest


@pytest.fixture
def compare(tuned, testbed):
    """The command on two hosts, which have this machine's hardware, and so its plan."""
    bed = testbed(2)
    options = bed.options(tuned.folder)

    def run(case, *arguments):
        quick = ("--starts", 1, "--budget", "1s", "--turn", "0.2s", "--loader-workers", 0)
        return tuned.data("compare", "--use-case", case, *options, *quick, *arguments)

    yield run
    assert bed.left_over() == set()


@pytest.mark.long
def test_ddp_and_our_job_take_turns_on_two_hosts(compare, cases):
    data = compare(f"{cases}:Steady", "--with", "ddp,plain", "--settings", "defaults")
    ddp, plain = data["peers"]
    assert ddp["error"] is None
    assert ddp["processes"] == 2 * data["hosts"][0]["cores"]
    assert len(ddp["rounds"]) >= 2
    assert "one host" in plain["error"]
    assert [host["name"] for host in data["hosts"]] == ["node1", "node2"]

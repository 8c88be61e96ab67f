"""Lines of jobs say what they do, as far as that can be read."""

from __future__ import annotations

from dataclasses import replace

import training_samples
from sample_plan import NOON

from launch.plan import Plan
from planner.records.job_record import JobState
from planner.records.progress import SearchProgress
from planner.report.jobs import job_text, jobs_table
from planner.report.table import Terminal
from probes import codec

SEARCH = SearchProgress(
    doing="timing plans",
    budget_s=60.0,
    left_s=30.0,
    trials=1,
    trial=Plan(strategy="threads", node_batch=8),
)
JOB = replace(
    training_samples.JOB,
    id=1,
    title="ddlplan tune --use-case simplebig",
    state=JobState.RUNNING,
    started_at=NOON,
    progress=codec.to_builtins(SEARCH),
)


def test_progress_with_a_plan_that_this_release_refuses_counts_as_none():
    """The story: such a plan of another release ended the list of all jobs."""
    assert "timing plans" in jobs_table([JOB], Terminal())
    refused = codec.to_builtins(SEARCH)
    refused["trial"]["node_batch"] = 0
    other = replace(JOB, progress=refused)
    assert "simplebig" in jobs_table([other], Terminal())
    assert "timing plans" not in job_text(other, Terminal())

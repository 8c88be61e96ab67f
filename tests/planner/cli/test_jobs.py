"""`ddlplan jobs`, and commands that become jobs, as people run them."""

from __future__ import annotations

import os
import platform
import pty
import signal
from dataclasses import replace

import pytest
from machine_holder import machine_in_use
from training_samples import JOB
from worth_cases import TRIALS

from launch.system.process_identity import ProcessIdentity
from planner.plans.stored_plan import utc_now
from planner.records.job_record import JobState
from planner.records.progress import ContenderStanding, SearchProgress
from planner.store import Store
from planner.supervision.job_folder import JobFolder
from probes import codec


@pytest.fixture
def held():
    """Whatever is to be timed waits, so that it can be listed and cancelled."""
    with machine_in_use():
        yield


def add_job(ddlplan, log=None, **changes):
    """Store a job as its supervisor left it."""
    ended = replace(
        JOB,
        created_at=utc_now(),
        title="ddlplan tune --use-case=fire",
        state=JobState.DONE,
        exit_code=0,
        started_at=utc_now(),
        ended_at=utc_now(),
    )
    with Store.open(str(ddlplan.folder / "planner.db")) as store:
        job = store.jobs.add(replace(ended, **changes))
        if log is not None:
            folder = JobFolder.create(job, ddlplan.folder / "jobs")
            folder.log.write_bytes(log)
            store.jobs.set_folder(job.id, str(folder.path))
    return job.id


def test_jobs_that_are_not_there(ddlplan):
    ended = ddlplan.run("jobs", "list", "--json")
    assert (ended.code, ended.document["data"]) == (0, [])
    assert "no database planner.db" in ended.document["warnings"][0]
    for command in ("show", "logs", "cancel"):
        assert ddlplan.run("jobs", command, 7).refusal(3).startswith("error: no job 7: ")
    assert ddlplan.listing() == []


@pytest.mark.usefixtures("held")
def test_search_is_detached_listed_followed_and_cancelled(ddlplan, cases):
    """What it is named by relative paths is the same for the job."""
    (ddlplan.folder / "cases.py").write_text(cases.read_text())
    (ddlplan.folder / "photos").mkdir()
    ended = ddlplan.run(
        *("tune", "--detach", "--use-case", "cases.py:Steady", "--data", "photos"),
        DDLPLAN_SEED="3",
    )
    assert ended.code == 0, ended.err
    typed = "ddlplan tune --data=photos --seed=3 --use-case=cases.py:Steady"
    assert sorted(ended.out.splitlines()[0].split()) == sorted(f"job 1: {typed}".split())
    assert ended.out.splitlines()[1:] == [
        "watch      ddlplan jobs logs 1 -f",
        "end        ddlplan jobs cancel 1",
    ]
    follower = ddlplan.start("jobs", "logs", 1, "-f")
    ddlplan.wait_until(lambda: "waiting" in ddlplan.run("jobs", "list").out, "the search waits")
    (job,) = ddlplan.data("jobs", "list")
    assert (job["state"], job["is_detached"], job["kind"]) == ("running", True, "tune")
    assert job["request"] == {"use_case": "cases.py:Steady", "data": "photos", "seed": 3}
    assert job["progress"]["doing"].startswith("waiting")
    assert ddlplan.run("jobs", "cancel", 1).code == 0
    followed = ddlplan.end(follower)
    assert followed.code == 0
    assert followed.out.startswith("waiting for process")
    assert followed.out.endswith("interrupted\n")
    assert followed.err.splitlines()[-1] == "job 1 is cancelled"
    assert ddlplan.data("jobs", "show", 1)["exit_code"] == 130
    again = ddlplan.run("jobs", "cancel", 1, "--json")
    assert (again.code, again.document["error"]["kind"]) == (2, "conflict")


def test_command_in_a_terminal_is_a_job_that_its_terminal_ends(ddlplan):
    with Store.open(str(ddlplan.folder / "planner.db")):
        pass
    with machine_in_use():
        process = ddlplan.start("probe")
        ddlplan.wait_until(lambda: ddlplan.data("jobs", "list"), "the probe is listed")
        assert "Ctrl-C there ends it" in ddlplan.run("jobs", "cancel", 1).refusal()
        assert "it writes to the terminal" in ddlplan.run("jobs", "logs", 1).refusal()
        process.send_signal(signal.SIGINT)
        assert ddlplan.end(process).code == 130
    (job,) = ddlplan.data("jobs", "list")
    assert (job["state"], job["exit_code"], job["is_detached"]) == ("cancelled", 130, False)
    assert job["title"] == "ddlplan probe"


def test_log_is_written_whole_and_harmless(ddlplan):
    """The story: of a log of more than 512 KiB, JSON had a part out of the middle, not the end."""
    line = "grün \x1b[31mred\x07\tend\n".encode()
    number = add_job(ddlplan, log=line * 30_000 + b"last \xff line")
    ended = ddlplan.run("jobs", "logs", number)
    assert ended.code == 0
    assert ended.out.count("\n") == 30_000
    assert ended.out.startswith("grün \\x1b[31mred\\x07\tend\n")
    assert ended.out.endswith("last \ufffd line")
    part = ddlplan.data("jobs", "logs", number)
    assert part["next_offset"] == part["size"] == len(line) * 30_000 + 11
    assert part["size"] - part["offset"] == 256 * 1024
    assert part["text"].endswith("\x07\tend\nlast \ufffd line")
    assert ddlplan.run("jobs", "logs", number, "-f", "--json").code == 2


def test_table_fits_a_terminal_and_a_pipe_gets_all(ddlplan):
    add_job(ddlplan, title="ddlplan tune --use-case=" + "x" * 200 + "\x1b[2J")
    add_job(ddlplan, state=JobState.FAILED, exit_code=3, error="no plan: " + "y" * 120)
    piped = ddlplan.run("jobs", "list")
    assert [len(piped.out.splitlines()), "\x1b" in piped.out] == [3, False]
    assert "x" * 200 + "\\x1b[2J" in piped.out
    assert "no plan: " + "y" * 120 in piped.out
    shown = shown_on_a_terminal(ddlplan, "jobs", "list", COLUMNS="80", NO_COLOR="1")
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["ID", "STATE", "BEGUN", "TIME", "COMMAND"]
    assert any(line.startswith("    no plan: ") for line in lines)
    assert "\x1b" not in shown


def test_tables_are_bold_on_a_terminal_and_nothing_of_it_is_spelled_out(ddlplan):
    add_job(ddlplan)
    shown = shown_on_a_terminal(ddlplan, "db", "info", TERM="xterm")
    assert "\x1b[1m" in shown
    assert "\\x1b" not in shown


def shown_on_a_terminal(ddlplan, *words, **environment) -> str:
    ours, theirs = pty.openpty()
    process = ddlplan.start(*words, terminal=theirs, **environment)
    assert process.wait() == 0
    os.close(theirs)
    shown = b""
    try:
        while block := os.read(ours, 65536):
            shown += block
    except OSError:
        os.close(ours)  # all is read
    return shown.decode()


def test_newest_jobs_come_first_and_no_more_than_asked_for(ddlplan):
    """The story: where more were asked for than any database holds, it was one that is damaged."""
    numbers = [add_job(ddlplan) for _ in range(4)]
    for most, expected in ((2, numbers[:1:-1]), (2**63, numbers[::-1])):
        assert [job["id"] for job in ddlplan.data("jobs", "list", "--limit", most)] == expected


def test_race_is_shown_with_who_left_and_why(ddlplan):
    plans = [trial.result.plan for trial in TRIALS[:2]]
    progress = SearchProgress(
        doing="racing plans",
        budget_s=60.0,
        left_s=12.0,
        trials=4,
        best_samples_per_s=50.0,
        is_generated=True,
        standings=(
            ContenderStanding(plan=plans[0], throughput_samples_per_s=50.0, is_leading=True),
            ContenderStanding(plan=plans[1], throughput_samples_per_s=20.0, reason="slower"),
        ),
    )
    number = add_job(
        ddlplan,
        state=JobState.RUNNING,
        exit_code=None,
        ended_at=None,
        process=ProcessIdentity.of(),
        progress=codec.to_builtins(progress),
        progress_at=utc_now(),
    )
    shown = {line.split()[0]: line for line in ddlplan.run("jobs", "show", number).out.splitlines()}
    assert "racing plans, 4 trials, best 50.0/s, 12s left, generated data" in shown["now"]
    assert "50.0/s" in shown["leads"]
    assert shown["left"].endswith("20.0/s, slower")
    assert "racing plans" in ddlplan.run("jobs", "list").out


def test_ctrl_c_ends_the_following_of_a_log_and_says_that_the_job_goes_on(ddlplan):
    number = add_job(
        ddlplan,
        b"a line\n",
        state=JobState.RUNNING,
        exit_code=None,
        ended_at=None,
        machine=platform.node(),
        process=ProcessIdentity.of(),
        heartbeat_at=utc_now(),
    )
    with (ddlplan.folder / "seen").open("w+") as seen:
        follower = ddlplan.start("jobs", "logs", number, "-f", terminal=seen.fileno())
        ddlplan.wait_until(lambda: "a line" in (ddlplan.folder / "seen").read_text(), "the log")
        follower.send_signal(signal.SIGINT)
        assert follower.wait() == 130
        said = (ddlplan.folder / "seen").read_text().splitlines()
    assert said[-1] == f"job {number} goes on"
    assert "interrupted" not in said

"""`ddlplan tune` as people run it, stop it and lose it: no finished trial is lost or made twice."""

from __future__ import annotations

import json
import os
import random
import signal
import time

import pytest

SEED = 20


def tune(command, case, *arguments):
    return command.start("tune", "--use-case", case, "--budget", "5m", *arguments)


def test_answer_is_on_stdout_and_progress_on_stderr(tuned_folder):
    out, err = (tuned_folder / "out").read_text(), (tuned_folder / "err").read_text()
    heads = [line.split()[0] for line in out.splitlines()]
    assert heads[:2] == ["best", "defaults"]
    assert heads[-3:] == ["trials", "time", "stored"]
    assert "next: ddlplan launch --use-case" in out
    assert "probing" in err
    assert "threads" in err or "sequential" in err
    assert "\x1b" not in out + err


@pytest.mark.long
def test_interrupted_search_says_what_it_knows_and_goes_on(probed, cases):
    process = tune(probed, f"{cases}:Steady")
    probed.wait_until(lambda: probed.count("trials") >= 2, "two trials")
    process.send_signal(signal.SIGINT)
    first = probed.end(process)
    assert first.code == 130
    # In a busy moment a step may seem to take long: then looks come first, which are no plans.
    assert ("best plan" in first.out) == probed.has_plan()
    assert "the same command goes on" in first.err
    assert "Traceback" not in first.err
    before = probed.count("trials")

    process = tune(probed, f"{cases}:Steady", "--json")
    probed.wait_until(lambda: probed.count("trials") > before, "another trial")
    process.send_signal(signal.SIGTERM)
    second = probed.end(process)
    assert second.code == 143
    assert second.document["error"]["code"] == 143
    assert "Traceback" not in second.err
    trials = probed.data("trials")
    assert {"defaults", "look"} & {trial["role"] for trial in trials}
    assert len({trial["study_id"] for trial in trials}) == 1
    probed.wait_until_all_ended()


def test_interrupt_before_the_first_trial_is_one_document_too(probed, cases):
    process = tune(probed, f"{cases}:Steady", "--json")
    probed.wait_until(lambda: probed.processes("fork_server"), "the start of the workers")
    os.kill(process.pid, signal.SIGINT)
    ended = probed.end(process)
    assert ended.code == 130
    if "error" in ended.document:  # else the first trial was done already
        assert ended.document["error"] == {
            "code": 130,
            "kind": "signal",
            "message": "interrupted",
        }
    assert "Traceback" not in ended.err
    probed.wait_until_all_ended()


@pytest.mark.long
def test_killed_search_loses_nothing_and_leaves_nothing_running(probed, cases):
    chance = random.Random(SEED)
    said = 0
    for kill in range(2):
        before = probed.count("trials")
        process = tune(probed, f"{cases}:Steady")
        if kill > 0:  # the first one dies while it starts
            wanted = before + chance.randint(1, 3)
            probed.wait_until(lambda: probed.count("trials") >= wanted, "trials")  # noqa: B023
        time.sleep(chance.uniform(0, 0.7))
        process.kill()
        ended = probed.end(process)
        assert ended.code == -signal.SIGKILL
        said += sum(1 for line in ended.err.splitlines() if line.split()[0].isdecimal())
        probed.wait_until_all_ended()
        assert probed.query("PRAGMA integrity_check") == [("ok",)]
        assert probed.count("trials") >= said

    ended = probed.end(tune(probed, f"{cases}:Steady", "--trials", "1", "--budget", "2m", "--json"))
    assert ended.code == 0, ended.err
    document = ended.document["data"]
    trials = probed.data("trials")
    assert sum(document["trials"].values()) == len(trials)
    assert [trial["number"] for trial in trials] == list(range(len(trials)))
    drawn = [trial for trial in trials if trial["role"] == "search" and trial["parameters"]]
    searched = [json.dumps(trial["parameters"]) for trial in drawn]
    assert len(searched) == len(set(searched))

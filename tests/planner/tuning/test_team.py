"""Two searches of one study at once share what they find, and lose none of it."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest
from imagined_machines import node_of

from planner.store import Store
from planner.trials.result import Outcome, Role, TrialResult
from tests.planner.tuning import recorded_search
from tests.planner.tuning.recorded_search import Recorded, Search

fork = multiprocessing.get_context("fork")
NODE = node_of(4)
REQUEST = replace(recorded_search.REQUEST, budget_s=120, trials=6, strategies=("threads",))
GUARD_S = 60


def search(url, node, barrier, pipe):
    """Search in step with the other as long as both do; say what was stored and taken over."""
    recorded, taken = Recorded(), []
    start = recorded.start

    def start_with_other(plan):
        if not barrier.broken:
            try:
                barrier.wait(GUARD_S)
            except Exception:  # noqa: BLE001 - the other has ended
                barrier.abort()
        return start(plan)

    recorded.start = start_with_other
    with Store.open(url) as store:
        barrier.wait(GUARD_S)
        one = Search(store, recorded, REQUEST, node=replace(NODE, node=node))
        take = one.findings.take_later

        def take_and_note():
            later = take()
            taken.extend([*later.own, *later.similar])
            return later

        one.findings.take_later = take_and_note
        outcome = one.tune()
        barrier.abort()
    pipe.send({"stored": outcome.new_trials, "taken": len(taken)})


@pytest.mark.parametrize("nodes", [("n1", "n1"), ("n1", "n2")])
def test_two_searches_at_once_take_over_each_others_trials_and_lose_none(database, nodes):
    barrier = fork.Barrier(2)
    pipes = [fork.Pipe(duplex=False) for _ in nodes]
    searches = [
        fork.Process(target=search, args=(database.url, node, barrier, writing))
        for node, (_, writing) in zip(nodes, pipes, strict=True)
    ]
    for one in searches:
        one.start()
    for _, writing in pipes:
        writing.close()  # so that a search that fails is no wait for ever
    said = [reading.recv() for reading, _ in pipes]
    for one in searches:
        one.join()
    assert [one.exitcode for one in searches] == [0, 0]
    assert all(one["taken"] > 0 for one in said)
    with Store.open(database.url, create=False) as store:
        trials = store.studies.all_trials()
        assert len(trials) == sum(one["stored"] for one in said)
        assert len(store.plans.find()) == 2
        for study in store.catalog.studies():
            numbers = [trial.number for trial in store.studies.trials(study.id)]
            assert numbers == list(range(len(numbers)))


def test_rounds_of_two_searches_of_a_study_are_never_the_same(database):
    with Store.open(database.url) as store:
        short = replace(REQUEST, trials=1)
        first, second = (Search(store, Recorded(), short, node=NODE) for _ in range(2))
        for one in (first, second):
            one.tuner.search()
        rounds = [
            {
                number
                for r in one.findings.new_results()
                if r.measurement
                for number in r.measurement.rounds
            }
            for one in (first, second)
        ]
    assert all(rounds)
    assert not rounds[0] & rounds[1]


def test_a_faster_plan_that_another_found_is_raced_here(database):
    """It would be proposed by nobody: this search may draw no plan of its own."""
    with Store.open(database.url) as store:
        other = Search(store, Recorded(), REQUEST, node=NODE)
        other.tuner.search()
        best = min(
            (r for r in other.findings.results if r.role is Role.SEARCH and r.measurement),
            key=lambda r: r.measurement.median_s / r.plan.node_batch,
        )
    # A database in which only the defaults are known, and the other's trial comes meanwhile.
    with Store.open(database.url) as store:
        fresh = replace(REQUEST, trials=0, fresh=True)
        mine = Search(store, Recorded(), fresh, node=NODE)
        store.studies.add_trial(mine.findings.study_id, best)
        mine.tuner.search()
        assert best.plan in [result.plan for result in mine.findings.new_results()]


def test_plan_that_another_had_no_time_for_is_still_to_be_tried_here(database):
    """The story: it counted as tried, and neither of two searches at once ever tried it."""
    asked = replace(REQUEST, trials=1, fresh=True)
    with Store.open(database.url) as store:
        first = Search(store, Recorded(), asked, node=NODE)
        first.tuner.search()
        (drawn,) = {r.plan for r in first.findings.new_results() if r.parameters}
        second = Search(store, Recorded(), asked, node=NODE)
        cut = TrialResult(plan=drawn, role=Role.SEARCH, outcome=Outcome.NO_TIME, elapsed_s=1.0)
        store.studies.add_trial(second.findings.study_id, cut)
        second.tuner.search()
        tried = {r.plan for r in second.findings.new_results() if r.parameters}
    assert tried == {drawn}

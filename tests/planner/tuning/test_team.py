"""Two searches of one study at once share what they find, and lose none of it."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace

import pytest
from imagined_machines import CASE, Machine, node_of
from sample_plan import SOFTWARE

from launch.reports import StepDone
from launch.workload import Workload
from planner.store import Store
from planner.trials.reports import ignore
from planner.trials.result import Role
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest

fork = multiprocessing.get_context("fork")
NODE = node_of(4)
REQUEST = TuneRequest(
    workload=Workload(use_case="simplebig"), budget_s=120, trials=6, strategies=("threads",)
)
GUARD_S = 60


class Contender:
    """Makes the steps of a plan on an imagined machine, and winds its clock."""

    disturbance = None
    peak_memory_bytes = 10**8
    compile_s = None

    def __init__(self, search, plan):
        self._search, self._plan = search, plan

    def make_steps(self, count, *, time_limit_s):
        step_s = self._search.machine.sample_s(self._plan) * self._plan.node_batch
        self._search.now_s += count * step_s
        return [
            StepDone(step=n, epoch=0, time_s=step_s, samples=self._plan.node_batch, loss=1.0)
            for n in range(count)
        ]

    def close(self):
        pass


class Search:
    """One person's search; it may wait for the other's at the start of each plan."""

    def __init__(self, store, node=NODE, step=lambda: None, request=REQUEST):
        self.machine = Machine(parts=2, fixed=0.3)
        self.now_s, self._step = 0.0, step
        self.findings = Findings(request, CASE, node, SOFTWARE, store.studies)
        self.taken = []
        take = self.findings.take_later

        def take_and_note():
            later = take()
            self.taken += [*later.own, *later.similar]
            return later

        self.findings.take_later = take_and_note
        self.tuner = Tuner(self.findings, self._start, ignore, clock=lambda: self.now_s)

    def _start(self, plan):
        self._step()
        self.now_s += 2.0
        return Contender(self, plan)


def search(url, node, barrier, pipe):
    """Search in step with the other as long as both do; say what was stored and taken over."""

    def wait_for_other():
        if not barrier.broken:
            try:
                barrier.wait(GUARD_S)
            except Exception:  # noqa: BLE001 - the other has ended
                barrier.abort()

    with Store.open(url) as store:
        barrier.wait(GUARD_S)
        one = Search(store, replace(NODE, node=node), wait_for_other)
        outcome = conclude(one.findings, store.plans, interrupted=one.tuner.search())
        barrier.abort()
    said = {"stored": outcome.new_trials, "taken": len(one.taken), "plan": outcome.plan.id}
    pipe.send(said)


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
        first, second = Search(store, request=short), Search(store, request=short)
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
        other = Search(store)
        other.tuner.search()
        best = min(
            (r for r in other.findings.results if r.role is Role.SEARCH and r.measurement),
            key=lambda r: r.measurement.median_s / r.plan.node_batch,
        )
    # A database in which only the defaults are known, and the other's trial comes meanwhile.
    with Store.open(database.url) as store:
        mine = Search(store, request=replace(REQUEST, trials=0, fresh=True))
        store.studies.add_trial(mine.findings.study_id, best)
        mine.tuner.search()
        assert best.plan in [result.plan for result in mine.findings.new_results()]

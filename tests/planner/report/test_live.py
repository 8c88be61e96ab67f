"""Display while hosts are checked, before anything is started there."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from host_answers import facts_of, host
from rich.console import Console
from sample_plan import CASE
from store_cases import trial

from launch.hosts.findings import CheckedHosts
from launch.plan import Plan
from launch.reports import Described, RanksJoined, Report, StepDone
from planner.api._call_context import CallContext
from planner.jobs.hosts import HostAccess, Hosts
from planner.jobs.mpi_run import MpiRunEnd
from planner.records.progress import ContenderStanding
from planner.report.live import LiveDisplay
from planner.report.output import Output
from planner.trials.reports import (
    RoundEnded,
    StudyOpened,
    TrialEnded,
    TrialProgress,
    TrialStarted,
)
from planner.trials.result import Outcome, Role
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn, Measurement

HOSTS = (host("node1"), host("node2"))
ENDED = MpiRunEnd(
    code=0,
    errors="",
    failures=(),
    has_reported=True,
    end_signal=None,
    silence_s=None,
    is_stopped=False,
)


class SlowHosts:
    """Hosts that take until the user was shown what is going on."""

    def __init__(self, written: io.StringIO, shows: dict[str, str]) -> None:
        self._written = written
        self._shows = shows
        self.done: list[str] = []

    def check_hosts(self, hosts, *, on_progress, **_):
        on_progress(1, len(hosts))
        self._wait_for("check")
        facts = {name: facts_of(number) for number, name in enumerate(("node1", "node2"), 1)}
        return CheckedHosts(hosts=HOSTS, findings=(), facts=facts, here=facts_of(1))

    def check_root(self):
        self.done.append("root")

    def run_mpi(self, _placement, _program, _document, _directory, on_report, *_, **__):
        self._wait_for("world")
        on_report(RanksJoined(names=("node1", "node2")))
        return ENDED

    def _wait_for(self, step):
        give_up = time.monotonic() + 60
        while self._shows.get(step, "") not in self._written.getvalue():
            assert time.monotonic() < give_up, self._written.getvalue()
            time.sleep(0.01)
        self.done.append(step)


@pytest.fixture
def look(monkeypatch):
    """Check two hosts; give what was done, and what was written meanwhile."""

    def check(*, is_terminal, **shows):
        written = io.StringIO()
        out = Output("probe", as_json=False)
        out.errors = Console(file=written, force_terminal=is_terminal, width=80)
        slow = SlowHosts(written, shows)
        monkeypatch.setattr("planner.jobs.hosts.check_hosts", slow.check_hosts)
        monkeypatch.setattr("planner.jobs.world_check.run_mpi", slow.run_mpi)
        monkeypatch.setattr(HostAccess, "check_root", slow.check_root)
        hosts = Hosts(machines=HOSTS, is_local=False)
        with LiveDisplay(out, hosts.names) as display:
            CallContext.of(hosts, "planner.db", display, None).check_all()
        return slow.done, written.getvalue()

    return check


def test_terminal_shows_how_many_hosts_have_answered_and_that_ranks_are_started(look):
    """The story: for half a minute nothing was to be seen."""
    done, _ = look(is_terminal=True, check="1 of 2 answered", world="starting an MPI rank")
    assert done == ["check", "root", "world"]


def described(*, samples: int) -> Described:
    return Described(facts=replace(CASE, train_samples=samples))


def step(*, samples: int, time_s: float = 0.1, loss: float = 1.0) -> StepDone:
    return StepDone(step=1, epoch=0, time_s=time_s, samples=samples, loss=loss)


def test_progress_of_an_epoch_begins_anew_after_a_restart():
    """The samples before the restart were added to those after it."""
    written = io.StringIO()
    out = Output("launch", as_json=False)
    out.errors = Console(file=written, force_terminal=True, width=80)
    with LiveDisplay(out) as display:
        for _ in range(2):
            display(described(samples=10))
            display(step(samples=6))
    assert "epoch 1/1" in written.getvalue()
    assert "validating" not in written.getvalue()


def test_what_is_no_terminal_gets_one_line(look):
    assert look(is_terminal=False)[1] == "checking 2 hosts\n"


def logged(*reports: tuple[float, Report], is_terminal: bool = False) -> list[str]:
    """Give the lines that are written of reports, each at a time of the clock."""
    written, now_s = io.StringIO(), 0.0
    out = Output("launch", as_json=True)  # its document is on stdout: this is beside it
    out.errors = Console(file=written, force_terminal=is_terminal, soft_wrap=True)
    with LiveDisplay(out, epochs=9, clock=lambda: now_s) as display:
        for at_s, report in reports:
            now_s = at_s
            display(report)
    return written.getvalue().splitlines()


def test_log_of_a_long_epoch_has_a_line_a_minute():
    """The story: the log of a batch job said nothing for an hour."""
    reports: list[tuple[float, Report]] = [(0.0, described(samples=50_000))]
    reports += [(s, step(samples=100, time_s=1.0, loss=0.41)) for s in range(1, 131)]
    reports += [(s, step(samples=50_000, time_s=1.0)) for s in (180, 181)]
    assert logged(*reports) == [
        "epoch 1/9: 6,000 of 50,000 samples, loss 0.410, 100.0 samples/s",
        "epoch 1/9: 12,000 of 50,000 samples, loss 0.410, 100.0 samples/s",
        "validating epoch 1/9",
    ]
    assert not any("samples/s" in line for line in logged(*reports, is_terminal=True))


def test_log_of_a_search_tells_of_its_races():
    plan = Plan(strategy="sequential", node_batch=64)
    standings = (
        ContenderStanding(plan=plan, throughput_samples_per_s=52.8, is_leading=True),
        ContenderStanding(plan=plan, throughput_samples_per_s=50.1),
    )
    reports = [
        (0.0, TrialStarted(plan=plan, role=Role.FINAL, left_s=300.0)),
        (61.0, TrialProgress(steps=1, elapsed_s=60.0, throughput_samples_per_s=1.0)),
        (90.0, RoundEnded(left_s=210.0, standings=standings)),
        (121.5, RoundEnded(left_s=180.0, standings=standings)),
    ]
    assert logged(*reports) == [
        "final: sequential 1x1 batch 64, 3m 59s left",
        "racing 2 plans, best 52.8 samples/s, 3m 0s left",
    ]


def test_reason_that_was_shown_is_not_shown_again():
    """A sample that cannot be read fails each plan: a screen of one and the same error."""
    reason = "IndexError: no such label (/home/me/case.py, line 7)"
    reasons = [f"worker 0: {reason}", "exit code 3", f"worker 1: {reason}", "exit code 3"]
    failed = replace(trial(0), outcome=Outcome.CRASH, measurement=None)
    results = [replace(failed, reason=said) for said in reasons]
    reports = [(0.0, TrialEnded(result=one, number=n)) for n, one in enumerate(results)]
    again = [(0.0, StudyOpened(study_id=2)), reports[2]]
    shown = [line.partition("batch 32  ")[2] for line in logged(*reports, *again)]
    same = ["the same as trial 0", "the same as trial 1"]
    assert shown == [*reasons[:2], *same, reasons[2]]


def test_best_of_trials_with_a_part_of_the_batch_is_said_to_be_a_look():
    """Its rate, of a batch that is never chosen, stood as the best above a best plan of half."""
    reports = []
    for number, (role, batch) in enumerate([(Role.LOOK, 16), (Role.LOOK, 16), (Role.FINAL, 64)]):
        plan = Plan(strategy="sequential", node_batch=batch)
        timed = Measurement(samples_s=(1.0, 1.0))
        result = replace(trial(0), plan=plan, role=role, measurement=timed)
        reports.append((0.0, TrialEnded(result=result, number=number, is_best=True)))
    assert [" ".join(line.split()) for line in logged(*reports)] == [
        "0 16.0/s sequential 1x1 batch 16",
        "1 16.0/s sequential 1x1 batch 16 best look",
        "2 64.0/s sequential 1x1 batch 64 best",
    ]


def test_trial_beside_other_processes_shows_its_own_rate_and_is_marked():
    """One of 27 samples/s was shown with 143.6, next to a plan that others had slowed tenfold."""
    busy = DisturbedTurn(round=1, disturbance=Disturbance(others_cores=0.7), was_repeated=False)
    timed = Measurement(samples_s=(2.0,), rounds=(1,), drift=5.0, disturbed=(busy,))
    result = replace(trial(0), measurement=timed)
    (line,) = logged((0.0, TrialEnded(result=result, number=1, is_best=True)))
    assert " ".join(line.split()) == "1 16.0/s sequential 1x1 batch 32 best disturbed"

"""A search on recorded times: a machine that is known, and a clock that its trials wind forward."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imagined_machines import PLAIN_CASE, node_of
from sample_plan import SOFTWARE

from launch.plan import Plan
from launch.reports import Noted, Report, StepDone
from launch.strategies import strategy_names
from launch.workload import Workload
from planner.store import Store
from planner.trials.contender import TrialFailedError
from planner.trials.reports import RoundEnded, TrialStarted
from planner.trials.result import Outcome, Role
from planner.tuning.conclusion import TuneOutcome, conclude
from planner.tuning.findings import Findings
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from probes.disturbance import Disturbance
from probes.hardware import Gpu

NODE = node_of(2, memory_bytes=2**33)
CASE = PLAIN_CASE
DEFAULTS = Plan(strategy="threads", node_batch=32, threads_per_process=2)
"""What a user has there without ddlplan: all cores, nothing set."""

GPU = Gpu(nvml_index=0, cuda_index=0, name="imagined", uuid="GPU-0")

REQUEST = TuneRequest(
    workload=Workload(use_case="simplebig"), budget_s=180, strategies=tuple(strategy_names())
)


class Recorded:
    """Answers as a machine did whose times per sample are known, and winds the clock."""

    start_s = 0.5

    def __init__(self) -> None:
        self.now_s = 0.0
        self.starts = 0
        self.ran: list[tuple[Role, Plan]] = []
        self.final_rounds: list[RoundEnded] = []
        self.fail = lambda plan: None
        self.fail_final = lambda plan: None
        self.stop_after: int | None = None
        self.final_factor = 1.0
        self.drift = lambda now_s: 1.0
        self.compile_s = lambda plan: None
        self.input_share = lambda plan: 0.0
        self.peak_bytes = 10**8
        self.disturbance: Disturbance | None = None

    def clock(self) -> float:
        return self.now_s

    def listen(self, report, _host=None) -> None:
        if isinstance(report, TrialStarted):
            self.ran.append((report.role, report.plan))
        if isinstance(report, RoundEnded) and Role.FINAL in {role for role, _ in self.ran}:
            self.final_rounds.append(report)

    def sample_s(self, plan: Plan) -> float:
        time_s = 0.030 / plan.threads
        time_s *= 1 + 2 / plan.node_batch
        time_s *= 0.9 if plan.memory_format == "channels_last" else 1.0
        time_s *= 0.9 if plan.allocator == "retain" else 1.0
        return time_s * (1.05 if plan.loader_workers else 1.0)

    def start(self, plan: Plan) -> RecordedContender:
        if self.stop_after is not None and len(self.ran) > self.stop_after:
            raise KeyboardInterrupt
        self.now_s += self.start_s
        role = self.ran[-1][0] if self.ran else Role.SEARCH
        failed = self.fail(plan) or (self.fail_final(plan) if role is Role.FINAL else None)
        if failed is not None:
            raise TrialFailedError(failed, str(failed))
        self.starts += 1
        return RecordedContender(self, plan, role)


class RecordedContender:
    """Makes the steps of a plan in recorded time."""

    def __init__(self, recorded: Recorded, plan: Plan, role: Role) -> None:
        self._recorded = recorded
        self._plan = plan
        self._factor = recorded.final_factor if role is Role.FINAL else 1.0
        self._made = 0
        self.peak_memory_bytes = recorded.peak_bytes
        self.compile_s = recorded.compile_s(plan)
        self.disturbance = recorded.disturbance

    def make_steps(self, count: int, *, time_limit_s: float) -> list[StepDone]:
        recorded, steps = self._recorded, []
        end_s = recorded.now_s + time_limit_s
        for _ in range(count):
            step_s = recorded.sample_s(self._plan) * self._plan.node_batch * self._factor
            step_s *= recorded.drift(recorded.now_s) * (1 + 0.002 * (self._made % 3 - 1))
            if recorded.now_s + step_s > end_s:
                recorded.now_s = end_s
                raise TrialFailedError(Outcome.TIME_LIMIT, "too long")
            recorded.now_s += step_s
            samples = self._plan.node_batch
            steps.append(
                StepDone(
                    step=self._made,
                    epoch=0,
                    time_s=step_s,
                    samples=samples,
                    loss=1.0,
                    input_s=step_s * recorded.input_share(self._plan),
                )
            )
            self._made += 1
        return steps

    def close(self) -> None:
        pass


class Search:
    """A search on recorded times, and what is concluded from it."""

    def __init__(self, store, recorded, request=REQUEST, case=CASE, node=NODE, **how) -> None:
        self.store = store
        self.findings = Findings(request, case, node, SOFTWARE, store.studies)
        self.told: list[Report] = []

        def listen(report, _host=None) -> None:
            recorded.listen(report)
            self.told.append(report)

        self.tuner = Tuner(self.findings, recorded.start, listen, clock=recorded.clock, **how)

    @property
    def notes(self) -> list[str]:
        """Lines that it said."""
        return [report.message for report in self.told if isinstance(report, Noted)]

    def tune(self) -> TuneOutcome:
        return conclude(self.findings, self.store.plans, interrupted=self.tuner.search())


@dataclass(frozen=True)
class Searched:
    """A search that several tests look at; none changes it."""

    recorded: Recorded
    search: Search
    outcome: TuneOutcome
    file: Path
    """Of its store, which is closed."""

    @classmethod
    def of(cls, file: Path, recorded: Recorded, *how) -> Searched:
        """Search in a new file."""
        with Store.open(str(file)) as store:
            search = Search(store, recorded, *how)
            return cls(recorded, search, search.tune(), file)

    def plans(self, role: Role) -> list[Plan]:
        return [plan for its, plan in self.recorded.ran if its is role]

    @contextmanager
    def open_copy(self, folder: Path) -> Iterator[Store]:
        """Give what it has stored to a test that goes on from it."""
        with Store.open(str(shutil.copy(self.file, folder))) as store:
            yield store

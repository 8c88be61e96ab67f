"""Stored evidence: the studies and trainings of a database that reports are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.strategies import load_strategy, strategy_names
from launch.use_cases._settings import split_name
from planner.records.machine_record import MachineRecord
from planner.records.study_record import StudyRecord
from planner.records.training_record import TrainingRecord
from planner.records.usage_record import HostUsage
from planner.report.hardware import describe_hardware
from planner.sweeps.sweep_record import StoredSweep, SweepPoint, SweepRecord
from planner.trainings.rates import training_rate
from planner.trials.comparison import PairNoise, compare_pairs, pair_logs
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.study import StoredTrial
from planner.tuning.tune_request import ENOUGH_STEPS
from planner.worth.evidence import ratio_of_rates
from probes.hardware import Hardware
from probes.timing import Interval

_LONGER = 2.0
"""Of what had too little time: the next time / the least that holds a comparison."""

_SHORTEST_S = 3.0
"""Of a training whose use over time shows anything."""


@dataclass(frozen=True, kw_only=True)
class StudyEvidence:
    """The latest study of a use case on one machine."""

    record: StudyRecord
    read_trials: Callable[[], Sequence[StoredTrial]]
    """Reads its trials, which not all of a report needs."""

    hardware: Hardware | None
    """Of the machine, where a probe of it is stored."""

    has_plan: bool = True
    """Whether a plan of it is stored."""

    others: int = 0
    """Further studies of that use case and machine, which are not shown."""

    @cached_property
    def results(self) -> Sequence[TrialResult]:
        """Of its trials, in the order in which they ended."""
        return [trial.result for trial in self.read_trials()]

    @property
    def data(self) -> str | None:
        """Where its data were; ``None`` where the use case found or made them."""
        return None if self.record.facts is None else self.record.facts.data

    @property
    def is_generated(self) -> bool:
        """Whether its samples were made up."""
        return self.record.facts is not None and self.record.facts.is_generated

    def baseline(self, *, on_gpus: bool = False) -> TrialResult | None:
        """Give the run on one core, or on one GPU, that had the most turns."""
        return max(self._baselines(on_gpus=on_gpus), key=_turns, default=None)

    @property
    def has_tried_baseline(self) -> bool:
        """Whether the run on one core was tried, though it may have failed."""
        return any(self._is_baseline(one) and not one.plan.gpus for one in self.results)

    def _baselines(self, *, on_gpus: bool) -> list[TrialResult]:
        return [
            one
            for one in self.results
            if self._is_baseline(one) and one.outcome.has_times
            if bool(one.plan.gpus) is on_gpus
        ]

    def _is_baseline(self, result: TrialResult) -> bool:
        """Tell whether it is the plain run on one device, which may be PyTorch's default there."""
        if result.role is Role.BASELINE:
            return True
        facts, plan = self.record.facts, result.plan
        return facts is not None and plan == Plan(
            strategy="sequential", node_batch=facts.default_batch, devices=plan.devices
        )

    def fastest(self, strategy: str, *, on_gpus: bool = False) -> TrialResult | None:
        """Give the fastest plan of a strategy that is no baseline; ``None`` without any.

        A plan that several searches timed counts with the trial that had the most turns.
        """
        thorough: dict[Plan, TrialResult] = {}
        for result in self.results:
            if not result.role.is_for_choice or result.role is Role.BASELINE:
                continue
            if result.plan.strategy != strategy or bool(result.plan.gpus) is not on_gpus:
                continue
            before = thorough.get(result.plan)
            if result.outcome.has_times and _turns(result) >= (_turns(before) if before else 1):
                thorough[result.plan] = result
        known = [
            (rate.median, result)
            for result in thorough.values()
            if (rate := result.throughput_samples_per_s()) is not None
        ]
        return max(known, key=lambda item: item[0])[1] if known else None

    def speedup(self, result: TrialResult) -> Interval | None:
        """Give samples per second / those of the baseline, from all rounds in which both ran.

        Each search of a study times the baseline anew, in rounds of its own numbers. ``None`` where
        the baseline is on another kind of device.
        """
        on_gpus = bool(result.plan.gpus)
        known = self._baselines(on_gpus=on_gpus)
        same = [one for one in self.results if one.plan == result.plan]
        paired = compare_pairs(
            [(one, other) for one in known for other in same], noise=self._noise[on_gpus]
        )
        if paired is not None:
            return paired
        rates = [rate for one in known if (rate := one.throughput_samples_per_s()) is not None]
        above = result.throughput_samples_per_s()
        return ratio_of_rates(rates[-1], above) if rates and above is not None else None

    @cached_property
    def _noise(self) -> Mapping[bool, PairNoise]:
        """Noise of the baselines and of all that had turns beside them: ``True`` is that on GPUs.

        It is learned from every two of these trials: once, for all strategies.
        """
        found = {}
        for on_gpus in (False, True):
            known = self._baselines(on_gpus=on_gpus)
            beside = [one for one in self.results if any(pair_logs(b, one) for b in known)]
            found[on_gpus] = PairNoise.of_results(beside)
        return found

    def failure(self, strategy: str) -> str | None:
        """Give why the last trial of a strategy failed, where none of its trials has times.

        ``None`` where the time was too short for its steps: more of it may give them.
        """
        of_strategy = [one for one in self.results if one.plan.strategy == strategy]
        short = (Outcome.TIME_LIMIT, Outcome.NO_TIME)
        failed = [result for result in of_strategy if result.outcome not in short]
        if not failed or any(result.outcome.has_times for result in failed):
            return None
        last = failed[-1]
        return last.reason or last.outcome.words

    def has_tried(self, strategy: str) -> bool:
        """Tell whether there was a trial of a strategy, whatever came of it."""
        return any(one.plan.strategy == strategy for one in self.results)

    @property
    def least_budget_s(self) -> float | None:
        """Budget that holds a comparison of two plans; ``None`` where the use case is not known."""
        facts = self.record.facts
        return None if facts is None else ENOUGH_STEPS * facts.default_batch * facts.sample_s

    @property
    def longer_budget_s(self) -> float | None:
        """Budget for what had too little time; ``None`` where the use case is not known."""
        return None if self.least_budget_s is None else _LONGER * self.least_budget_s

    @cached_property
    def obstacles(self) -> Mapping[str, str]:
        """Why strategies cannot run here; empty where use case or machine are not on record."""
        facts, hardware = self.record.facts, self.hardware
        if facts is None or hardware is None:
            return {}
        return obstacles_of(facts, hardware)


@dataclass(frozen=True, kw_only=True)
class TrainingEvidence:
    """A training with what its hosts used."""

    record: TrainingRecord
    read_usage: Callable[[], Mapping[str, HostUsage]] = dict
    """Reads it: that of all trainings takes most of the time of a report."""

    @cached_property
    def usage(self) -> Mapping[str, HostUsage]:
        """By host."""
        return self.read_usage()

    @property
    def first_use(self) -> HostUsage | None:
        """What its first host used, where that is enough to be shown."""
        use = self.usage.get(self.record.hosts[0].host)
        return use if use is not None and use.time_s and use.time_s[-1] >= _SHORTEST_S else None

    @property
    def epoch_rate(self) -> float:
        """Samples per second of its median epoch, which need no use to be read; 0 without one."""
        rates = [e.throughput_samples_per_s for e in self.record.epochs_done if e.samples]
        return median(rates) if rates else 0.0

    @cached_property
    def rate(self) -> Interval | None:
        """Samples per second."""
        return training_rate(self.record, self.usage)

    @property
    def is_generated(self) -> bool:
        """Whether its samples were made up."""
        return bool(self.record.is_generated)

    @property
    def strategies(self) -> str:
        """Of its hosts."""
        return " + ".join(dict.fromkeys(host.plan.strategy for host in self.record.hosts))

    @property
    def precision(self) -> str:
        """Of its hosts: ``fp32``, or what else one of them computes in."""
        found = dict.fromkeys(host.plan.precision for host in self.record.hosts)
        return " + ".join([name for name in found if name != "fp32"] or found)

    @property
    def workers(self) -> int:
        """Workers, or replicas that threads drive, of all hosts."""
        return sum(max(host.plan.processes, host.plan.replicas) for host in self.record.hosts)

    @property
    def cores(self) -> int:
        """Threads that compute, of all hosts."""
        return sum(host.plan.threads for host in self.record.hosts)

    @property
    def uses_gpus(self) -> bool:
        """Whether a host trains on GPUs."""
        return any(host.plan.gpus for host in self.record.hosts)


@dataclass(frozen=True, kw_only=True)
class SweepEvidence:
    """A sweep whose points are read where it is shown."""

    record: SweepRecord
    read_points: Callable[[], Sequence[SweepPoint]]
    """Reads them, by batch and setting."""

    @cached_property
    def sweep(self) -> StoredSweep:
        """The sweep with its points."""
        return StoredSweep(record=self.record, points=self.read_points())


@dataclass(frozen=True, kw_only=True)
class StoredEvidence:
    """What a database holds of the papers' use cases."""

    studies: Mapping[str, Sequence[StudyEvidence]] = field(default_factory=dict)
    """By use case: of each machine the last used, the machine that was last used first."""

    trainings: Mapping[str, Sequence[TrainingEvidence]] = field(default_factory=dict)
    """By use case, the newest first; only those that made a step."""

    sweeps: Mapping[str, Sequence[SweepEvidence]] = field(default_factory=dict)
    """By use case, the newest first; only those that have a point."""

    machines: Sequence[MachineRecord] = ()
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why something could not be measured just now, by its key."""

    db: str | None = None
    """Database, which the commands that are named are for; ``None`` where there is none."""

    names_db: bool = False
    """Whether commands name it though one typed here would find it: they are read elsewhere."""

    data: Mapping[str, str] = field(default_factory=dict)
    """Paths of the data that were asked for, by use case without settings."""

    def suits(self, use_case: str, data: str | None) -> bool:
        """Tell whether data are those that were asked for; any are, where none were."""
        return data == self.data.get(split_name(use_case)[0], data)

    def of(self, use_case: str) -> Sequence[StudyEvidence]:
        return self.studies.get(use_case, ())

    def trained(self, use_case: str) -> Sequence[TrainingEvidence]:
        return self.trainings.get(use_case, ())

    def swept(self, use_case: str) -> Sequence[SweepEvidence]:
        return self.sweeps.get(use_case, ())

    def find_hardware(self, node: str, fingerprint: str) -> Hardware | None:
        """Find the hardware of a machine, where a probe of it is stored."""
        place = node, fingerprint
        return next((m.hardware for m in self.machines if (m.name, m.fingerprint) == place), None)

    def describe_machine(self, node: str, fingerprint: str) -> str:
        """Name a machine with its hardware, where a probe of it is stored."""
        known = self.find_hardware(node, fingerprint)
        return node if known is None else f"{node}: {describe_hardware(known)}"

    def describe_hosts(self, names: Iterable[str]) -> Iterator[str]:
        """Name hosts of trainings with their hardware, each once.

        A training has their names alone: of several machines of one name nobody knows which it was.
        """
        for name in dict.fromkeys(names):
            machines = [machine for machine in self.machines if machine.name == name]
            said = "no probe under this name is stored"
            if len(machines) > 1:
                said = "several machines of this name are stored"
            elif machines and (node := machines[0].hardware) is not None:
                said = describe_hardware(node)
            yield f"{name}: {said}."

    def describe_sweep(self, record: SweepRecord) -> str:
        """Name a sweep with its machine and software, and whether its data were made up."""
        made_up = "; generated data" if record.data is None else ""
        return (
            f"{record.use_case}: sweep {record.id} on "
            f"{self.describe_machine(record.node, record.fingerprint)}; "
            f"{describe_software(record.software)}, {record.created_at:%Y-%m-%d}; "
            f"epochs: {record.epochs}; seed {record.seed}{made_up}."
        )

    def study_of(self, use_case: str, fingerprint: str) -> StudyEvidence | None:
        """Give the study of a machine with this hardware, of the data that were asked for."""
        return next(
            (
                one
                for one in self.of(use_case)
                if one.record.fingerprint == fingerprint and self.suits(use_case, one.data)
            ),
            None,
        )


def _turns(result: TrialResult) -> int:
    return 0 if result.measurement is None else len(result.measurement.samples_s)


def obstacles_of(facts: CaseFacts, node: Hardware) -> dict[str, str]:
    """Say of the strategies that cannot run on a machine why not, without loading numpy for it."""
    found = {name: load_strategy(name).obstacle(facts, node) for name in strategy_names()}
    return {name: obstacle for name, obstacle in found.items() if obstacle is not None}


def describe_machine(study: StudyEvidence) -> str:
    """Name the hardware and the software behind a study's figures."""
    record, node = study.record, study.hardware
    when = "" if record.last_trial_at is None else f", {record.last_trial_at:%Y-%m-%d}"
    hardware = "no probe of it is stored" if node is None else describe_hardware(node)
    made_up = "; generated data" if study.is_generated else ""
    software = describe_software(record.software)
    others = "1 other study is" if study.others == 1 else f"{study.others} other studies are"
    left_out = f"; {others} not shown" if study.others else ""
    return f"{record.node}: {hardware}; {software}; study {record.id}{when}{made_up}{left_out}."


def mark_generated(title: str, are_generated: Iterable[bool]) -> str:
    """Say in the title of a plot that what it shows is of generated data, or a part of it."""
    known = list(are_generated)
    if not any(known):
        return title
    return f"{title}, {'' if all(known) else 'partly '}generated data"


def describe_software(software: Mapping[str, str]) -> str:
    """Name the packages that decide how fast a training is, with their versions."""
    known = (name for name in ("torch", "ddlplan") if name in software)
    return ", ".join(f"{name} {software[name]}" for name in known)

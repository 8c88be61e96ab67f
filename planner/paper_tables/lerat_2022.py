"""Lerat, Mahmoudi and Mahmoudi (2022): every way to spread a step, on one node and on several."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from launch.strategies import load_strategy, strategy_names
from launch.strategies._gpus import usable_gpus, why_no_gpu
from planner.paper_tables._base import Paper
from planner.paper_tables._evidence import (
    StoredEvidence,
    StudyEvidence,
    TrainingEvidence,
    describe_machine,
    obstacles_of,
)
from planner.paper_tables._reasons import data_option, db_option, explain_no_gpu, measure_command
from planner.paper_tables._strategy_use import strategy_use
from planner.paper_tables._values import Cell, PaperTable, TableColumn, UsagePlots
from planner.paper_tables._wanted import (
    Wanted,
    WantedPlan,
    WantedTraining,
    WantedTrial,
    trial_key,
)
from planner.quantities import format_count
from planner.report.plan_line import describe_plan
from planner.trainings.rates import ratio_of_trainings
from planner.trials.result import TrialResult
from probes.hardware import Hardware

_CASES = {"simplebig": "SimpleBig (AlexNet)", "complexsmall": "ComplexSmall (VGG16)"}
_BASELINE = "baseline"

_START_S, _RACED_STEPS = 6.0, 6
"""Of each plan in a race of the strategies' best, which starts each of them twice."""

_UNKNOWN = (
    "The paper's hardware, the work that its seconds are for, and its other cells: not found here."
)
_FASTEST = (
    "Ours is the fastest plan that was tried of each strategy, any batch; ± and ranges are 95 % "
    "intervals of turns side by side with one core, or with one GPU."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """A row of the paper on one node."""

    title: str
    strategy: str
    """`_BASELINE` for one core, or one GPU."""

    published: Mapping[str, float]
    """By use case; times the baseline, of the baseline seconds. What is not here was not found."""

    @property
    def is_baseline(self) -> bool:
        return self.strategy == _BASELINE


_ON_CPU = (
    _Setting(
        title="one core",
        strategy=_BASELINE,
        published={"simplebig": 879.38, "complexsmall": 629.73},
    ),
    _Setting(title="one process, threads", strategy="threads", published={}),
    _Setting(
        title="several processes",
        strategy="processes",
        published={"simplebig": 15.57, "complexsmall": 5.76},
    ),
    _Setting(title="model parallel: pipeline", strategy="pipeline", published={}),
    _Setting(title="hybrid: pipelines side by side", strategy="hybrid", published={}),
)
_ON_GPUS = (
    _Setting(
        title="one GPU",
        strategy=_BASELINE,
        published={"simplebig": 121.82, "complexsmall": 34.25},
    ),
    _Setting(title="data parallel", strategy="gpu_data", published={}),
    _Setting(
        title="model parallel: pipeline",
        strategy="pipeline",
        published={"simplebig": 8.01, "complexsmall": 6.74},
    ),
    _Setting(title="hybrid: pipelines side by side", strategy="hybrid", published={}),
)
_MPI_CPU = {"simplebig": 26.62, "complexsmall": 12.11}
_MPI_GPU = {"simplebig": 11.79, "complexsmall": 4.13}
_SPARK = {"simplebig": 0.53, "complexsmall": 1.14}

_COLUMNS = (
    TableColumn(key="setting", title="Setting"),
    TableColumn(key="machine", title="Machine", may_drop=True),
    TableColumn(key="data", title="Data", may_drop=True),
    TableColumn(key="unit", title="Unit"),
    TableColumn(key="published", title="Published", is_number=True),
    TableColumn(key="ours", title="Ours", is_number=True),
    TableColumn(key="rate", title="Samples/s", is_number=True),
    TableColumn(key="plan", title="Plan", may_drop=True),
)


class Lerat2022(Paper):
    """Their tables 1 to 3 and figures 2 to 5."""

    name = "lerat_2022"
    order = 1
    title = "One node and several: SimpleBig and ComplexSmall"
    citation = (
        "Lerat, Mahmoudi and Mahmoudi, Distributed Deep Learning: From Single-Node to Multi-Node "
        "Architecture, Electronics 11(10):1525, 2022, doi 10.3390/electronics11101525"
    )
    use_cases = tuple(_CASES)

    def tables(self, held: StoredEvidence) -> Sequence[PaperTable]:
        found = []
        for case, title in _CASES.items():
            notes = (_FASTEST, *map(describe_machine, held.of(case)), _UNKNOWN)
            for key, what, settings, on_gpus in (
                ("cpu", "one node, CPU", _ON_CPU, False),
                ("gpu", "one node, GPUs", _ON_GPUS, True),
            ):
                rows = [
                    row
                    for setting in settings
                    for row in _rows(held, case, setting, on_gpus=on_gpus)
                ]
                found.append(self._table(f"lerat-{case}-{key}", f"{title}, {what}", rows, notes))
            rows = list(_rows_of_several(held, case))
            notes = (
                "Ours is the fastest training on several hosts, in fp32 where there is one, / one "
                "core of the first host with the same data. They ran at different times: how far "
                "the machine drifts is in the interval.",
                *map(describe_machine, held.of(case)),
                _UNKNOWN,
            )
            found.append(self._table(f"lerat-{case}-nodes", f"{title}, several nodes", rows, notes))
        return found

    def plots(self, held: StoredEvidence) -> Sequence[UsagePlots]:
        return [strategy_use(held, case, title) for case, title in _CASES.items()]

    def wanted(self, held: StoredEvidence, node: Hardware) -> Sequence[Wanted]:
        found: list[Wanted] = []
        # A step of VGG16 takes as long as five of AlexNet at the same speed.
        for case, weight in (("simplebig", 1.0), ("complexsmall", 1.6)):
            found += _wanted(held, case, node, weight)
        return found

    def _table(
        self, key: str, title: str, rows: Sequence[Mapping[str, Cell]], notes: Sequence[str]
    ) -> PaperTable:
        return PaperTable(
            key=key,
            title=title,
            columns=_COLUMNS,
            rows=tuple(rows),
            source=self.citation,
            notes=tuple(notes),
        )


def _rows(
    held: StoredEvidence, case: str, setting: _Setting, *, on_gpus: bool
) -> Iterator[Mapping[str, Cell]]:
    """Give the row of a setting for each machine; one without figures where there is none."""
    head = {
        "setting": Cell(text=setting.title),
        "published": Cell.published(setting.published.get(case)),
        "unit": Cell(text="s (ours: an epoch)" if setting.is_baseline else _unit(on_gpus=on_gpus)),
    }
    if not held.of(case):
        key = trial_key(case, setting.strategy)
        tune = f"ddlplan tune --use-case {case}{db_option(held)}"
        why = held.reasons.get(key, f"not measured: {measure_command(held)}, or {tune}")
        yield {**head, "ours": Cell.lacking(why)}
    for study in held.of(case):
        yield {
            **head,
            "machine": Cell(text=study.record.node),
            **_data_cell(study.data, is_generated=study.is_generated),
            **_figures(held, study, setting, on_gpus=on_gpus),
        }


def _data_cell(data: str | None, *, is_generated: bool) -> Mapping[str, Cell]:
    text = "generated" if is_generated else data or ""
    return {"data": Cell(text=text)} if text else {}


def _figures(
    held: StoredEvidence, study: StudyEvidence, setting: _Setting, *, on_gpus: bool
) -> Mapping[str, Cell]:
    result = (
        study.baseline(on_gpus=on_gpus)
        if setting.is_baseline
        else study.fastest(setting.strategy, on_gpus=on_gpus)
    )
    if result is None:
        return {"ours": Cell.lacking(_why_not(held, study, setting, on_gpus=on_gpus))}
    rate = result.throughput_samples_per_s()
    assert rate is not None  # it has times
    if setting.is_baseline:
        facts = study.record.facts
        epoch_s = None if facts is None else rate.reciprocal(facts.train_samples)
        ours = Cell.of(epoch_s, "the study does not say how many samples an epoch has")
    else:
        why = "its study has no baseline on the same kind of device"
        ours = Cell.of(study.speedup(result), why)
    return {
        "ours": ours,
        "rate": Cell.measured(rate),
        "plan": Cell(text=describe_plan(result.plan)),
    }


def _why_not(
    held: StoredEvidence, study: StudyEvidence, setting: _Setting, *, on_gpus: bool
) -> str:
    """Say why a machine has no figure of a setting."""
    node = study.hardware
    if on_gpus and node is not None and not node.gpus:
        return explain_no_gpu(study.record.node, node)
    if on_gpus and node is not None and (fault := why_no_gpu(node)) is not None:
        return fault
    if on_gpus and node is not None and setting.strategy in ("pipeline", "hybrid"):
        needed = 2 if setting.strategy == "pipeline" else 4
        usable = len(usable_gpus(node))
        if usable < needed:
            gpus = format_count(usable, "GPU" if usable == len(node.gpus) else "usable GPU")
            return f"{gpus} on {study.record.node}, and it needs {needed}"
    options = f"{data_option(study.data)}{db_option(held)}"
    tune = f"ddlplan tune --use-case {study.record.use_case}{options}"
    budget_s = study.longer_budget_s or 0
    longer = f"--budget {max(5, math.ceil(budget_s / 60))}m"  # at least what it is by default
    if setting.is_baseline:
        device = "GPU" if on_gpus else "core"
        way = f"{tune} {longer}" if study.has_tried_baseline else measure_command(held)
        return f"study {study.record.id} has no run on one {device} that succeeded: {way}"
    if (obstacle := study.obstacles.get(setting.strategy)) is not None:
        return obstacle
    if not on_gpus and node is not None and load_strategy(setting.strategy).uses_gpus(node):
        return f"on {study.record.node} its plans train on GPUs"
    if (failure := study.failure(setting.strategy)) is not None:
        return f"its trials failed: {failure}"
    what, tune = "not tried", f"{tune} --strategies {setting.strategy}"
    if study.has_tried(setting.strategy):
        what, tune = "its trials had too little time", f"{tune} {longer}"
    key = trial_key(study.record.use_case, setting.strategy)
    return held.reasons.get(key, f"{what}: {measure_command(held)}, or {tune}")


def _unit(*, on_gpus: bool) -> str:
    return "times one GPU" if on_gpus else "times one core"


def _rows_of_several(held: StoredEvidence, case: str) -> Iterator[Mapping[str, Cell]]:
    for title, published, on_gpus in (
        ("MPI over nodes, CPU", _MPI_CPU, False),
        ("MPI over nodes, GPUs", _MPI_GPU, True),
    ):
        yield {
            "setting": Cell(text=title),
            "published": Cell.published(published.get(case)),
            "unit": Cell(text=_unit(on_gpus=on_gpus)),
            **_several(held, case, on_gpus=on_gpus),
        }
    yield {
        "setting": Cell(text="Spark over nodes"),
        "published": Cell.published(_SPARK.get(case)),
        "ours": Cell.lacking(
            "ddlplan does not train through Spark; beside it, shown there, not stored: "
            f"ddlplan compare --use-case {case} --with spark_map_reduce --hosts FILE"
            f"{db_option(held)}"
        ),
        "unit": Cell(text="times the baseline"),
    }


def _several(held: StoredEvidence, case: str, *, on_gpus: bool) -> Mapping[str, Cell]:
    known = [
        one
        for one in held.trained(case)
        if len(one.record.hosts) > 1 and one.uses_gpus is on_gpus and one.epoch_rate > 0
    ]
    if not known:
        what = "on GPUs " if on_gpus else ""
        command = f"ddlplan launch --use-case {case} --hosts FILE{db_option(held)}"
        return {"ours": Cell.lacking(f"no training {what}on several hosts is stored: {command}")}
    best = max(
        known,
        key=lambda one: (
            held.suits(case, one.record.data),
            one.precision == "fp32",  # as the baselines are
            _study_beside(held, case, one) is not None,
            one.epoch_rate,
        ),
    )
    names = [host.host for host in best.record.hosts]
    rate = best.rate
    assert rate is not None
    how = best.strategies if best.precision == "fp32" else f"{best.strategies} {best.precision}"
    cells = {
        "machine": Cell(text=f"{len(names)} hosts"),
        **_data_cell(best.record.data, is_generated=best.is_generated),
        "rate": Cell.measured(rate),
        "plan": Cell(text=f"{how}: {' '.join(names[:8])}"),
    }
    study = _study_beside(held, case, best)
    baseline = None if study is None else study.baseline(on_gpus=on_gpus)
    if baseline is None:
        why = (
            f"no baseline of {names[0]} with the same data is among the studies shown: "
            f"ddlplan tune --use-case {case}{data_option(best.record.data)} --hosts FILE"
            f"{db_option(held)}"
        )
        return {"ours": Cell.lacking(why), **cells}
    below = baseline.throughput_samples_per_s()
    assert below is not None
    return {"ours": Cell.measured(ratio_of_trainings(below, rate)), **cells}


def _study_beside(
    held: StoredEvidence, case: str, training: TrainingEvidence
) -> StudyEvidence | None:
    """Give the study of a training's first host with the same data."""
    first = training.record.hosts[0]
    place = first.machine or first.host, training.record.data  # a host file may have its address
    return next((one for one in held.of(case) if (one.record.node, one.data) == place), None)


def _wanted(held: StoredEvidence, case: str, node: Hardware, weight: float) -> Iterator[Wanted]:
    study = held.study_of(case, node.fingerprint())
    facts = None if study is None else study.record.facts
    names = strategy_names()
    if facts is not None:
        obstacles = obstacles_of(facts, node)
        names = [name for name in names if name not in obstacles]
    trained = set[str]()
    for one in held.trained(case):
        is_new = len(one.record.hosts) == 1 and one.strategies not in trained
        if is_new and held.suits(case, one.record.data) and one.first_use is not None:
            trained.add(one.strategies)
    trials = {name: _trial_of(study, name) for name in names}
    untried = [
        name
        for name, trial in trials.items()
        if trial is None and (study is None or study.failure(name) is None)
    ]
    # The first one tells which of the others can run here.
    untried.sort(key=lambda name: name != "processes")
    least_s = None if study is None else study.least_budget_s
    for name in untried:
        is_new = study is None or not study.has_tried(name)
        needed_s = least_s if study is None or is_new else study.longer_budget_s
        yield WantedTrial(use_case=case, strategy=name, least_s=needed_s, weight=weight)
    is_compared = study is not None and study.has_tried_baseline
    if study is None or not study.has_plan or not is_compared:
        if least_s is not None and is_compared:
            least_s *= 0.5  # most of it was timed before
        elif least_s is not None:
            least_s += _race_s([trial for trial in trials.values() if trial is not None])
        yield WantedPlan(use_case=case, least_s=least_s, weight=0.5 * weight)
    for name, trial in trials.items():
        if name not in trained:
            yield WantedTraining(
                use_case=case,
                name=name,
                trial=trial,
                after=trial_key(case, name),
                weight=0.5 * weight,
            )


def _race_s(trials: Sequence[TrialResult]) -> float:
    """Give the time in which plans start twice, get warm and have turns."""
    rates = [(one, one.throughput_samples_per_s()) for one in trials]
    steps_s = sum(one.plan.node_batch / rate.median for one, rate in rates if rate is not None)
    return len(trials) * 2 * _START_S + _RACED_STEPS * steps_s


def _trial_of(study: StudyEvidence | None, strategy: str) -> TrialResult | None:
    """Give the trial whose plan is trained with; the baseline is that of `sequential`."""
    if study is None:
        return None
    for on_gpus in (True, False):
        if (found := study.fastest(strategy, on_gpus=on_gpus)) is not None:
            return found
    baseline = study.baseline()
    return baseline if baseline is not None and baseline.plan.strategy == strategy else None

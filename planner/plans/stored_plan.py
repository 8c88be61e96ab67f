"""Stored plan: a plan with its evidence; whether it is stale, and the best of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from launch.plan import Plan
from planner.plans.measured_steps import MeasuredSteps
from planner.plans.objective import Objective
from planner.plans.software import release_series
from planner.quantities import interval_json
from planner.scripts.naming import hides_workers, is_script
from probes import codec
from probes.codec import Count, Positive
from probes.timing import Interval


def utc_now() -> datetime:
    """Give the present time in whole seconds, as stored and shown."""
    return datetime.now(UTC).replace(microsecond=0)


def iso_utc(moment: datetime) -> str:
    """Write an aware time as ``2026-11-20T12:00:00Z``."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """Plan that speedups refer to, PyTorch's defaults on the node, with its throughput."""

    strategy: str
    node_batch: Count
    throughput_samples_per_s: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPlan:
    """A plan that took turns with the stored one."""

    name: str
    """``defaults``: PyTorch's defaults on the node; ``one_core``: what the papers compare with;
    ``own_batch``: the stored plan with the use case's own batch; ``runner_up``: the next best."""

    plan: Plan
    throughput_samples_per_s: Positive

    speedup: Interval
    """Its time per sample / the stored plan's, in turns side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPlan:
    """A plan with its evidence, as in the store and in plan files."""

    id: int | None = None
    """Given by the store; ``None`` until then."""

    use_case: str
    """Where it was found: a name, ``package.module:object`` or ``file.py:object``."""

    use_case_digest: str | None = None
    """`launch.case_facts.CaseFacts.digest` of it, which is the same wherever it lies; ``None`` for
    plans of the first releases."""

    node: str
    fingerprint: str
    plan: Plan
    throughput_samples_per_s: Interval

    speedup: Interval | None
    """Time per sample of the baseline / of the plan; ``None`` where the baseline failed."""

    baseline: Baseline | None
    peak_memory_bytes: int | None
    created_at: datetime
    software: Mapping[str, str]

    peak_device_memory_bytes: int | None = None
    """As of `planner.trials.result.TrialResult`; ``None`` for plans of older releases too."""

    step_time: MeasuredSteps | None = None
    """Step times with its own and other batches; ``None`` where only its own was measured."""

    gradient_bytes: int | None = None
    """Size of the gradients; ``None`` for plans of the first release."""

    comparisons: tuple[ComparedPlan, ...] = ()
    """Plans that it was raced against at last."""

    begins_early: bool | None = None
    """Whether a step of several nodes begins before the gradients of the last one are summed;
    ``None`` for plans of the first releases."""

    objective: Objective | None = None
    """What it was chosen for; ``None`` for throughput."""
    is_generated: bool | None = None
    """Whether the use case made up the samples that it was timed with; ``None`` where that is not
    known."""

    study_id: int | None = None
    """Study whose trials are the evidence; ``None`` for a plan from a file."""

    @property
    def lacks_data(self) -> bool:
        """Whether it was found with data, and where they are was not imported with it."""
        from launch.use_cases import use_case_names  # which lists of plans do not ask for

        # A built-in use case makes its samples up wherever no data are named.
        is_built_in = self.use_case.partition(",")[0] in use_case_names()
        return self.study_id is None and is_built_in and self.is_generated is False

    def to_json(self, *, stale: bool) -> dict[str, Any]:
        """Give the plan as the JSON that scripts rely on."""
        throughput = self.throughput_samples_per_s
        unknown = {"loader_workers": None} if hides_workers(self.use_case) else {}
        return {
            "id": self.id,
            "use_case": self.use_case,
            "use_case_digest": self.use_case_digest,
            "node": self.node,
            "fingerprint": self.fingerprint,
            **codec.to_builtins(self.plan),
            **unknown,
            "throughput_samples_per_s": interval_json(throughput, with_samples=True),
            "speedup": interval_json(self.speedup),
            "baseline": codec.to_builtins(self.baseline),
            "comparisons": [_comparison_json(one, unknown) for one in self.comparisons],
            "peak_memory_bytes": self.peak_memory_bytes,
            "peak_device_memory_bytes": self.peak_device_memory_bytes,
            "step_time": None if self.step_time is None else self.step_time.to_json(),
            "gradient_bytes": self.gradient_bytes,
            "begins_early": self.begins_early,
            "objective": codec.to_builtins(self.objective),
            "is_generated": self.is_generated,
            "created_at": iso_utc(self.created_at),
            "software": dict(self.software),
            "stale": stale,
        }


def _comparison_json(compared: ComparedPlan, unknown: Mapping[str, None]) -> dict[str, Any]:
    document = codec.to_builtins(compared)
    plan, speedup = document["plan"] | unknown, interval_json(compared.speedup)
    return {**document, "plan": plan, "speedup": speedup}


HERE = "here is"
"""Before the version that would run a plan. Where a reason is read elsewhere, it says where."""


def stale_reasons(
    stored: StoredPlan, *, fingerprint: str | None, software: Mapping[str, str]
) -> tuple[str, ...]:
    """Give the reasons why a plan is stale, one phrase each; empty when it is not.

    The hardware of its node today and the versions that would run it are held against its own.
    Hardware that is not known makes no plan stale.
    """
    reasons = []
    if fingerprint is not None and fingerprint != stored.fingerprint:
        reasons.append("made on other hardware")
    for package in ("torch", "ddlplan"):
        made, now = stored.software.get(package), software.get(package)
        if made is None or now is None:
            continue
        # Kernels change with a minor release of torch, the meaning of a plan with any release of
        # ddlplan.
        shown = release_series if package == "torch" else str
        if shown(made) != shown(now):
            reasons.append(f"made with {package} {made}, {HERE} {now}")
    return tuple(reasons)


def find_best(
    plans: Sequence[StoredPlan], *, fingerprint: str | None, software: Mapping[str, str]
) -> StoredPlan | None:
    """Choose the plan to use where the user names none.

    Of a study, whose trials can be compared, only the latest plan counts: its search included the
    results of earlier ones. A plan in bf16 is chosen only where there is none in fp32, because
    only the user changes numerics. Of those left it is the fastest that is not stale, else the
    fastest.

    A script has one name before and after an edit. Only plans of the version that was tuned last
    count.

    Plans whose median lies in the fastest one's interval are not shown to be slower; of these
    the latest is taken.
    """
    latest = _latest_of_scripts(_latest_of_studies(plans))
    exact = [p for p in latest if p.plan.precision == "fp32"] or latest
    fresh = [p for p in exact if not stale_reasons(p, fingerprint=fingerprint, software=software)]
    candidates = fresh or exact
    if not candidates:
        return None
    fastest = max(candidates, key=lambda p: p.throughput_samples_per_s.median)
    bound = fastest.throughput_samples_per_s.low
    tied = [p for p in candidates if p.throughput_samples_per_s.median >= bound]
    return max(tied, key=lambda p: (p.created_at, p.id or 0))


def _latest_of_studies(plans: Sequence[StoredPlan]) -> list[StoredPlan]:
    """Leave out plans that a later one of their study supersedes; those of no study stay."""
    ordered = sorted(plans, key=lambda p: p.id or 0)
    latest = {p.study_id: p for p in ordered if p.study_id is not None}
    return [p for p in ordered if p.study_id is None or latest[p.study_id] is p]


def _latest_of_scripts(plans: Sequence[StoredPlan]) -> list[StoredPlan]:
    """Leave out plans of a script's earlier versions; those of an unknown one stay."""
    known = {p.use_case: p.use_case_digest for p in plans if p.use_case_digest is not None}
    return [
        p
        for p in plans
        if not is_script(p.use_case) or p.use_case_digest in (None, known.get(p.use_case))
    ]

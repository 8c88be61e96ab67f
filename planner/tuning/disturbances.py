"""Disturbances of a search: what others took of the machine while plans were timed, in one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from launch.plan import Plan
from planner.quantities import format_count
from planner.trials.result import Role, TrialResult
from probes.disturbance import Disturbance
from probes.timing import DisturbedTurn

_WORTH_SAYING = 0.1
"""Part of the turns that count."""

_LEAST_CORES, _LEAST_ON_GPU, _LEAST_WAITING = 0.05, 0.05, 0.1
"""Means below which a cause is not named."""

END_OTHERS = "end other processes"


def explain_disturbances(results: Sequence[TrialResult]) -> str | None:
    """Say by what and how often turns were disturbed, and what helps; ``None`` where it is little.

    Those of the final come first, for all that is claimed rests on them.

    Args:
        results: Trials of a search. A plan that was stored twice has its first turns in both.
    """
    if (found := _find_first(results)) is None:
        return None
    said, remedies = found
    return f"{said}: {', or '.join([*remedies, 'raise --budget for surer intervals'])}"


def find_remedies(results: Sequence[TrialResult]) -> list[str]:
    """Name what helps against what disturbed turns; nothing where they were few."""
    found = _find_first(results)
    return [] if found is None else found[1]


def _find_first(results: Sequence[TrialResult]) -> tuple[str, list[str]] | None:
    """Find what disturbed the turns of the final, or else all turns: see `_find`."""
    final = [result for result in results if result.role is Role.FINAL]
    rounds = {number for one in final if one.measurement for number in one.measurement.rounds}
    # The defaults have turns in the search too.
    final += [
        result
        for result in results
        if result.role is Role.DEFAULTS and result.measurement
        if not rounds.isdisjoint(result.measurement.rounds)
    ]
    return _find(final, "the turns of the final") or _find(results, "the turns")


def _find(results: Sequence[TrialResult], what: str) -> tuple[str, list[str]] | None:
    """Say by what and how often turns were disturbed, with the remedies."""
    turns, counted = dict[tuple[Plan, int, int], DisturbedTurn](), set[tuple[Plan, int]]()
    for result in results:
        if (known := result.measurement) is None:
            continue
        plan = result.plan
        counted |= {(plan, number) for number in known.rounds}
        # A round has several where its turn was taken again. One stored before has the first ones.
        turns |= {(plan, one.round, place): one for place, one in enumerate(known.disturbed)}
    disturbed = [turn.disturbance for turn in turns.values() if not turn.was_repeated]
    if len(disturbed) < _WORTH_SAYING * max(1, len(counted)):
        return None
    found = list(_causes(disturbed)) or [("others disturbed plans", END_OTHERS)]
    causes = " and ".join(cause for cause, _ in found)
    remedies = dict.fromkeys(remedy for _, remedy in found if remedy is not None)
    share = 100 * len(disturbed) / len(counted)
    repeated = sum(turn.was_repeated for turn in turns.values())
    again = f" ({repeated} more were disturbed and repeated)" if repeated else ""
    return f"{causes} during {share:.0f} % of {what}{again}", list(remedies)


def _causes(disturbed: Sequence[Disturbance]) -> Iterator[tuple[str, str | None]]:
    """Give each cause with its own remedy, ``None`` where nobody here can do anything."""
    others = fmean(one.others_cores or 0.0 for one in disturbed)
    if others >= _LEAST_CORES:
        yield f"other processes used {others:.1f} cores", END_OTHERS
    stolen = fmean(one.stolen_cores for one in disturbed)
    if stolen >= _LEAST_CORES:
        yield f"the hypervisor gave {stolen:.1f} cores to other machines", None
    throttled = fmean(one.throttled_cores for one in disturbed)
    if throttled >= _LEAST_CORES:
        yield f"a used-up quota kept {throttled:.1f} cores idle", "raise the quota"
    if hot := sum(one.overheated for one in disturbed):
        cause = f"the processor slowed down for heat {format_count(hot, 'time')}"
        yield cause, "improve the cooling of the processor"
    on_gpu = fmean(one.others_gpu_share for one in disturbed)
    if on_gpu >= _LEAST_ON_GPU:
        yield f"other processes computed on a GPU {100 * on_gpu:.0f} % of the time", END_OTHERS
    if slowed := sum(one.slowed_gpus for one in disturbed):
        cause = f"a GPU slowed down for heat or lack of power {format_count(slowed, 'time')}"
        yield cause, "improve the cooling and power supply of the GPU"
    waiting = fmean(one.waiting_share or 0.0 for one in disturbed)
    if waiting >= _LEAST_WAITING and all(one.others_cores is None for one in disturbed):
        yield f"tasks waited for a core {100 * waiting:.0f} % of the time", END_OTHERS

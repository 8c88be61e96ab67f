"""Steps of a script's ranks, by what these have told, and what makes them no fair measure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from launch.errors import ScriptRefusedError
from launch.plan import Plan
from launch.scripts.environment import OWN_SETTINGS, PATCH_PREFIX, patches_of, placeholder_values
from launch.scripts.program import BATCH, PROCESSES, THREADS, WORKERS, Program
from launch.scripts.rank_channel import Rank
from launch.scripts.recognition import OptimizerEvent, RecognisedSteps, check_batch, recognise

_MOST_REST = 0.05
"""Part of the time of a run, from its first step on, that may lie after its last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """A step of a script, over all its ranks."""

    time_s: float
    """From the end of the step before; of the first in a turn, from the turn's begin."""

    samples: int | None = None
    """Read for it, 0 where they were read ahead; ``None`` where no data loader was seen."""

    input_s: float | None = None
    """Part in which the slowest rank waited for its data loaders."""


def recognise_steps(ranks: Sequence[Rank]) -> RecognisedSteps | None:
    """Recognise a script's steps by those of its first rank; ``None``: more are needed.

    Raises:
        ScriptRefusedError: No step can be told.
    """
    first, readers = ranks[0], sum(rank.has_read for rank in ranks)
    return recognise(
        first.events,
        first.optimizers,
        ranks=len(ranks),
        readers=readers,
        idle=first.idle_optimizers,
    )


def take_steps(
    ranks: Sequence[Rank], seen: RecognisedSteps, count: int | None, output_tail: str
) -> list[StepSeen]:
    """Take whole steps out of the ranks' events, and check their batches.

    Args:
        ranks: Of a script, each of which has told of these steps.
        seen: What a step is.
        count: At most so many; ``None``: all.
        output_tail: The last of what the script wrote.

    Raises:
        ScriptRefusedError: It has gone over to another batch.
    """
    by_rank = [_split(rank, seen.boundary) for rank in ranks]
    number = min(map(len, by_rank)) if by_rank else 0
    if count is not None:
        number = min(number, count)
    by_rank = [steps[:number] for steps in by_rank]
    for rank, steps in zip(ranks, by_rank, strict=True):
        _check_sizes(rank, steps, seen.batch_size, output_tail)
    totals = [sum(e.time_s for step in steps for e in step) for steps in by_rank]
    slowest = totals.index(max(totals)) if totals else 0
    is_async = any(rank.is_async for rank in ranks)
    mean_s = max(totals) / number if totals and number else 0.0
    made = []
    for at in range(number):
        own = by_rank[slowest][at]
        fetches = [f for steps in by_rank for e in steps[at] for f in e.trained]
        sizes = [None if f.size is None else f.size * f.count for f in fetches]
        known = [size for size in sizes if size is not None]
        is_seen = seen.samples_per_step is not None and len(known) == len(sizes)
        made.append(
            StepSeen(
                # On a GPU only the end of a turn is an end of work.
                time_s=mean_s if is_async else sum(e.time_s for e in own),
                samples=sum(known) if is_seen else None,
                input_s=sum(e.input_s for e in own),
            )
        )
    return made


def check_against_plan(
    seen: RecognisedSteps, ranks: Sequence[Rank], program: Program, plan: Plan
) -> None:
    """Check that a script does what its plan says.

    Raises:
        ScriptRefusedError: It has another batch, or others of what the plan sets.
    """
    values = placeholder_values(program, plan)
    batch = values.get(BATCH)
    check_batch(seen, batch if isinstance(batch, int) else None)
    first = ranks[0]
    trained = {f.loader for e in first.events for f in e.trained}
    found = {first.loader_workers.get(loader) for loader in trained}
    workers = {count for count in found if count is not None}
    if WORKERS in values and workers and values[WORKERS] not in workers:
        raise ScriptRefusedError(
            f"workers={values[WORKERS]} and its data loader has {min(workers)}: it does not "
            "follow {workers}"
        )
    if PROCESSES in values and values[PROCESSES] != len(ranks):
        raise ScriptRefusedError(
            f"processes={values[PROCESSES]} and {len(ranks)} make steps: it does not follow "
            "{processes}"
        )
    unchanged = patches_of(plan).keys() - first.patched
    if unchanged:
        raise ScriptRefusedError(
            f"{PATCH_PREFIX}{min(unchanged)} changes nothing in this script: leave it out"
        )
    is_set = THREADS in values or not plan.options.get(OWN_SETTINGS)
    threads = plan.threads_per_process
    if is_set and first.threads is not None and first.threads != threads:
        raise ScriptRefusedError(
            f"threads_per_process={threads} and torch has {first.threads}: leave out "
            "torch.set_num_threads, or write {threads} into the command"
        )


def find_other_training(ranks: Sequence[Rank], seen: RecognisedSteps) -> str | None:
    """Say that an optimizer steps which did not when it was recognised what a step is."""
    for rank in ranks:
        others = set(rank.optimizers) - set(seen.round)
        ended = [n for n in others if n >= len(seen.optimizers)]
        if ended:
            return (
                f"another optimizer, {rank.optimizers[ended[0]]}, has begun to step: only one "
                "training of a script can be measured: leave out the others, or pass --no-python "
                "to time whole runs"
            )
    return None


def describe_hidden(batches: int, *, has_stepped: bool) -> str:
    """Say that a script reads batches, and makes no steps of them that are seen."""
    after = " after its first ones" if has_stepped else ""
    # Of the same data, what is read with gradients after the last step may be an evaluation too.
    other = "it evaluates without torch.no_grad()" if has_stepped else "it first reads them all"
    return (
        f"{batches} batches read and no step of an optimizer seen{after} (a CUDA graph hides its "
        f"steps, or {other}): use --step-regex on a line that it prints, or --no-python"
    )


def find_work_after_steps(rank: Rank, seen: RecognisedSteps) -> str | None:
    """Say that a script works outside of its steps: they do not tell how long it takes."""
    if rank.rest_s is None:  # it has not left as Python does
        return None
    total_s = rank.steps_s + rank.rest_s
    if rank.rest_s <= _MOST_REST * total_s:
        return None
    if rank.rest_batches > seen.batches_per_step:
        return describe_hidden(rank.rest_batches, has_stepped=True)
    return (
        f"a run took {total_s:.3g} s from its first step on, and its steps {rank.steps_s:.3g} s: "
        f"{rank.rest_s / total_s:.0%} is work after the last step: let it make more steps, or pass "
        "--no-python to time whole runs"
    )


def _check_sizes(
    rank: Rank, steps: list[list[OptimizerEvent]], expected: int | None, output_tail: str
) -> None:
    """Refuse a script that has gone over to another batch; the last of an epoch may be smaller."""
    if expected is None:
        return
    for step in steps:
        sizes = [f.size for event in step for f in event.trained]
        others = [size for size in sizes if size is None or size > expected]
        if sizes and not others:
            is_smaller = expected not in sizes
            rank.smaller_steps = rank.smaller_steps + 1 if is_smaller else 0
            loaders = [f.loader for event in step for f in event.trained]
            # Of an iterable data set each process has a last batch of its own.
            if rank.smaller_steps > max(1, *(rank.loader_workers.get(n) or 1 for n in loaders)):
                others = sizes
        if others:
            raise ScriptRefusedError(
                f"batches of {expected} and then of {others[0]}: its batch changes, so "
                "that its steps are not comparable: fix the batch",
                output_tail,
            )


def _split(rank: Rank, boundary: int) -> list[list[OptimizerEvent]]:
    """Take a rank's whole steps; what is left of the next one stays."""
    steps: list[list[OptimizerEvent]] = []
    step: list[OptimizerEvent] = []
    for event in rank.events:
        step.append(event)
        if event.optimizer == boundary:
            steps.append(step)
            step = []
    rank.events = step
    return steps

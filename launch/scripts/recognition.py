"""Recognition: what a step of a script is, by what its optimizers and its data loaders do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite
from statistics import median_low

from launch.errors import ScriptRefusedError

MOST_EVENTS = 512
LEAST_ROUNDS = 3
"""So many times a pattern has to be seen."""

MOST_SMALL_STEPS = 3
"""Steps in a row without a whole batch, at the end of an epoch: a library that reads a batch ahead
reads the last, then none, and then two."""

_IDLE_EVENTS = 12
"""Steps of optimizers in which another one that there is may yet make its first: in a GAN the
critic often steps five times before the generator does."""

_MOST_NAMED = 3
"""Optimizers that are told one by one: where each parameter has its own, they are many."""

_MOST_LOSS_PART = 0.1
"""Part by which the first loss of a patched script may be off: its user may not set a seed."""

_LONGEST_ROUND = MOST_EVENTS // (LEAST_ROUNDS + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Batches of one size that a process read from one of its data loaders."""

    loader: int
    size: int | None
    """Samples of the batch; ``None`` where it has no tensor."""

    count: int
    is_training: bool = True
    """Whether gradients were recorded then: they are not in a validation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerEvent:
    """A step of an optimizer in one process, with what came before it."""

    optimizer: int
    time_s: float
    """Since the event before it, or since the turn began."""

    input_s: float = 0.0
    """Part in which it waited for a data loader."""

    fetches: tuple[Fetch, ...] = ()
    backwards: int = 0
    """Calls of ``backward``."""

    loss: float | None = None
    """Mean of what ``backward`` was called on: of the first events alone, on a GPU of less."""

    @property
    def trained(self) -> tuple[Fetch, ...]:
        """Fetches outside of validations."""
        return tuple(fetch for fetch in self.fetches if fetch.is_training)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecognisedSteps:
    """What a step of a script is."""

    optimizers: tuple[str, ...]
    """Classes, in the order of their first steps."""

    boundary: int
    """The optimizer whose step ends a step of the training."""

    round: tuple[int, ...]
    """Optimizers that step in a step of the training."""

    batches_per_step: float
    """Of one process, on average; 0 where no data loader was seen."""

    batch_size: int | None
    """``None`` where sizes differ or are not seen."""

    ranks: int
    readers: int
    """Ranks that read batches: one may read those of all."""

    samples_per_step: int | None
    """Over all ranks; ``None`` where no data loader was seen."""

    backwards_per_step: int = 1

    loader_sizes: tuple[int, ...] = ()
    """Sizes of the batches of each data loader, where a step reads several that differ in them."""

    @property
    def whole_samples(self) -> int | None:
        """Samples of a step of whole batches over all ranks; ``None`` where they are not known.

        The last batch of an epoch is often smaller.
        """
        if self.loader_sizes:
            return self.samples_per_step
        if self.batch_size is None or not self.batches_per_step:
            return None
        return round(self.batch_size * self.batches_per_step * self.readers)

    @property
    def described_size(self) -> str:
        """Its batches' sizes, in words."""
        if self.loader_sizes:
            return f"of {_join([*map(str, self.loader_sizes)])}"
        return "of different sizes" if self.batch_size is None else f"of {self.batch_size}"

    def __str__(self) -> str:
        names = _join([self.optimizers[number] for number in dict.fromkeys(self.round)])
        is_one = len(set(self.round)) == 1
        first = f"optimizer {names}" if is_one else f"optimizers {names}"
        if not is_one:
            first += f": a step is {_describe_paces(self.round, self.optimizers)}"
        ranks = f" on each of {self.ranks} ranks" if self.ranks > 1 else ""
        if not self.batches_per_step:
            passes = self.backwards_per_step
            each = f" per {passes} backward passes" if passes > 1 else ""
            return f"{first}, 1 step{each}, batches not seen{ranks}"
        number = f"{self.batches_per_step:g}"
        batches = "batch" if number == "1" else f"{number} batches"
        if self.readers < self.ranks:
            ranks = f", read by {self.readers} of {self.ranks} ranks"
        return f"{first}, 1 step per {batches} {self.described_size}{ranks}"


def find_round(optimizers: Sequence[int]) -> tuple[int, ...] | None:
    """Find the shortest pattern in which optimizers step, as far as it shows.

    What comes before the last rounds is start-up, which may differ.
    """
    for length in range(1, min(_LONGEST_ROUND, len(optimizers) // LEAST_ROUNDS) + 1):
        tail = optimizers[-length * LEAST_ROUNDS :]
        # All optimizers seen have to be in it, or it is a part of a longer one.
        if tail[length:] == tail[:-length] and set(tail) == set(optimizers):
            return tuple(tail[-length:])
    return None


def recognise(
    events: Sequence[OptimizerEvent],
    names: Mapping[int, str],
    *,
    ranks: int,
    readers: int | None = None,
    idle: int = 0,
) -> RecognisedSteps | None:
    """Recognise the steps in the events of one rank; ``None`` where more events are needed.

    Args:
        events: Of the rank.
        names: Of the classes of its optimizers.
        ranks: That make steps.
        readers: Those of them that read batches; ``None``: all.
        idle: Optimizers that there were beside the first one when that made its first step.

    Raises:
        ScriptRefusedError: Optimizers step at such paces that no step can be told.
    """
    steps = [event.optimizer for event in events]
    if len(events) < _IDLE_EVENTS and len(set(steps)) <= idle:
        return None
    pattern = find_round(steps)
    listed = tuple(names.get(number, "Optimizer") for number in range(max(names, default=-1) + 1))
    if pattern is None:
        if len(events) < MOST_EVENTS:
            return None
        raise ScriptRefusedError(
            f"optimizers {_join(list(listed))} step without a pattern in {len(events)} steps: "
            "use --step-regex on a line that it prints"
        )
    boundary = _find_boundary(events, pattern)
    if boundary is None:
        paces = _describe_paces(pattern, listed)
        raise ScriptRefusedError(
            f"optimizers step at different paces, {paces} in a round: no step can be told: "
            "use --step-regex on a line that it prints"
        )
    ends = [at for at, event in enumerate(events) if event.optimizer == boundary]
    whole = [events[a + 1 : b + 1] for a, b in pairwise(ends[-LEAST_ROUNDS:])]
    fetched = [[f for event in step for f in event.trained] for step in whole]
    sizes = Counter({f.size: 0 for fetches in fetched for f in fetches})
    for fetch in (f for fetches in fetched for f in fetches):
        sizes[fetch.size] += fetch.count
    batches = median_low([sum(f.count for f in fetches) for fetches in fetched])
    samples = median_low([sum((f.size or 0) * f.count for f in fetches) for fetches in fetched])
    readers, loader_sizes = readers or ranks, _find_loader_sizes(fetched)
    return RecognisedSteps(
        optimizers=listed,
        boundary=boundary,
        round=pattern,
        batches_per_step=batches,
        batch_size=None if loader_sizes else _common_size(sizes),
        ranks=ranks,
        readers=readers,
        samples_per_step=samples * readers if batches and None not in sizes else None,
        backwards_per_step=median_low([sum(e.backwards for e in step) for step in whole]),
        loader_sizes=loader_sizes,
    )


def check_batch(seen: RecognisedSteps, batch: int | None) -> None:
    """Check that a script uses the batch that it was told.

    Raises:
        ScriptRefusedError: It uses another one.
    """
    if batch is None or seen.samples_per_step is None:
        return
    accumulated = max(1, round(seen.batches_per_step))
    allowed = {batch // parts for parts in (1, seen.ranks, accumulated, seen.ranks * accumulated)}
    if allowed.isdisjoint(seen.loader_sizes or (seen.batch_size,)):
        raise ScriptRefusedError(
            f"batch={batch} and the script reads batches {seen.described_size}: it does not follow "
            "{batch}"
        )


def has_losses(losses: Sequence[float | None]) -> bool:
    """Tell whether others can be held against some of these."""
    return any(loss is not None and isfinite(loss) for loss in losses)


def check_losses(
    patched: Sequence[float | None], own: Sequence[float | None], patches: Sequence[str]
) -> None:
    """Check that a patched script begins to learn as the user's own does.

    Args:
        patched: Losses of its first steps.
        own: The same without patches; none where that trains something else.
        patches: Their names.

    Raises:
        ScriptRefusedError: It does not, or shows no loss any more.
    """
    names = ", ".join(patches)
    if has_losses(own) and not any(
        loss is not None and has_losses([expected])
        for loss, expected in zip(patched, own, strict=False)
    ):
        raise ScriptRefusedError(
            f"no loss seen in its first steps with {names}, to hold against those without: leave "
            "them out of --patch"
        )
    for step, (loss, expected) in enumerate(zip(patched, own, strict=False), start=1):
        if loss is None or expected is None or not isfinite(expected):
            continue
        off = abs(loss - expected)
        if not off <= _MOST_LOSS_PART * abs(expected):  # NaN is refused, too
            raise ScriptRefusedError(
                f"loss {loss:.4g} in step {step} with {names} and {expected:.4g} "
                "without: leave them out of --patch, or, where the script draws numbers by "
                "generators of its own, give these a seed"
            )


def _find_loader_sizes(steps: Sequence[Sequence[Fetch]]) -> tuple[int, ...]:
    """Find the size of each data loader's batches, where every step reads several that differ.

    The small last batch of a loader that is made anew for each epoch is in one step alone.
    """
    first, *others = [sorted({(f.loader, f.size or 0) for f in fetches}) for fetches in steps]
    sizes = tuple(size for _, size in first)
    if any(other != first for other in others) or len({loader for loader, _ in first}) < len(first):
        return ()
    return sizes if len(set(sizes)) > 1 and 0 not in sizes else ()


def _common_size(sizes: Counter[int | None]) -> int | None:
    """Find the size of whole batches: the last one of an epoch may be smaller."""
    if not sizes or None in sizes or len(sizes) > 2:
        return None
    return max(sizes, key=lambda size: (sizes[size], size or 0))


def _find_boundary(events: Sequence[OptimizerEvent], pattern: tuple[int, ...]) -> int | None:
    """Find the optimizer that steps once in a round, the last before a new batch is read."""
    counts = Counter(pattern)
    once = [number for number in pattern if counts[number] == 1]
    if not once:
        return None
    tail = events[-len(pattern) * LEAST_ROUNDS :]
    for event, following in pairwise(tail):
        if event.optimizer in once and following.trained:
            return event.optimizer
    return once[-1]


def _describe_paces(pattern: Sequence[int], names: Sequence[str]) -> str:
    """Say how often each optimizer steps in a round, and where they are many, how many do so."""
    paces = [(count, names[number]) for number, count in Counter(pattern).items()]
    if len(paces) <= _MOST_NAMED:
        return ", ".join(f"{count} of {name}" for count, name in paces)
    return ", ".join(
        f"{count} of {name}" if many == 1 else f"{count} of each of {many} {name}"
        for (count, name), many in Counter(paces).items()
    )


def _join(names: Sequence[str]) -> str:
    *others, last = list(dict.fromkeys(names)) if len(names) > _MOST_NAMED else list(names)
    return f"{', '.join(others)} and {last}" if others else last

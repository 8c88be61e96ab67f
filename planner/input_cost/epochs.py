"""Time of epochs: the first one reads files, later ones find them cached or decoded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from launch.case_facts import CaseFacts
from planner.input_cost.read_times import ReadTimes, cache_hits, read_times, sample_s
from planner.plans.stored_plan import StoredPlan
from probes.hardware import DataSpeed, Hardware

_LATER = 1000
"""An epoch so late that nothing is new in it."""

_MOST_EPOCHS = 100_000
_LEAST_SAVING = 0.01
"""Of an epoch: a copy that saves less of each later one never pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCost:
    """Time of a plan's epochs on one node, with what reading the data takes of it."""

    data: DataSpeed
    train_samples: int

    validation_samples: int
    """Read after every epoch, each node the same ones again."""

    base_s: float
    """Of a sample, where none waits for its file."""

    in_place_s: Callable[[float], float]
    """Of a sample, by the part of all samples that the node has not read before."""

    copied_s: Callable[[float], float] | None = None
    """The same where the data are copied to the local disk before."""

    copy_s: float | None = None
    """Time to copy them."""

    share: float = 1.0
    """Part of every epoch that the node trains."""

    def sample_s(self, epoch: int) -> float:
        """Give the time of a sample in an epoch, from 0."""
        return self.in_place_s(self._unread(epoch))

    def _unread(self, epoch: int) -> float:
        return float((1 - self.share) ** epoch)

    def epoch_s(self, epoch: int) -> float:
        """Give the time of an epoch's training steps, from epoch 0 on, on this node alone."""
        return self.train_samples * self.sample_s(epoch)

    @property
    def later_s(self) -> float:
        """Time of an epoch late in the training."""
        return self.epoch_s(_LATER)

    def mean_sample_s(self, epochs: int) -> float:
        """Give the mean time of a sample over the first epochs."""
        some = min(epochs, _LATER)
        total = sum(self.sample_s(epoch) for epoch in range(some))
        return (total + (epochs - some) * self.sample_s(_LATER)) / epochs

    @property
    def copy_fits(self) -> bool | None:
        """Whether the local disk has room for a copy; ``None`` where that is not known."""
        local, num_bytes = self.data.local, self.data.num_bytes
        if local is None or local.free_bytes is None or num_bytes is None:
            return None
        return num_bytes <= local.free_bytes

    def epochs_until_copied(self) -> int | None:
        """Give the number of epochs after which copying all data to this node has paid.

        The node gains on its share of them alone. ``None`` where it never pays, or where there is
        no other disk with room to copy them to.
        """
        if self.copy_s is None or self.copied_s is None or self.copy_fits is False:
            return None
        saved_s = 0.0
        for epoch in range(_MOST_EPOCHS):
            gain_s = self.train_samples * self._gain_s(self._unread(epoch))
            gain_s += self.validation_samples * self._gain_s(0.0 if epoch else 1.0)
            saved_s += self.share * gain_s
            if saved_s > self.copy_s:
                return epoch + 1
            if epoch >= 1 and gain_s < _LEAST_SAVING * self.epoch_s(epoch):
                return None
        return None

    def _gain_s(self, unread: float) -> float:
        assert self.copied_s is not None  # there is a copy to gain from
        return self.in_place_s(unread) - self.copied_s(unread)


def assess_input(
    stored: StoredPlan,
    facts: CaseFacts | None,
    node: Hardware,
    data: DataSpeed | None,
    *,
    share: float = 1.0,
) -> InputCost | None:
    """Work out what the epochs of a stored plan take; ``None`` where too little is known.

    Its trials found their samples in the page cache, or decoded. With several nodes each reads its
    share of every epoch, in another order each time: what it has not read before it reads from
    files, also in later epochs.

    Args:
        stored: The plan.
        facts: What is trained; ``None`` where that is not on record.
        node: The plan's machine.
        data: Measured speed of the data there; ``None`` where it was not measured.
        share: Part of every epoch that the node trains.
    """
    if facts is None or data is None:
        return None
    plan = stored.plan
    here = read_times(plan, facts, data)
    if here is None:
        return None
    base_s = 1 / stored.throughput_samples_per_s.median
    room_bytes = node.memory.usable_bytes - (stored.peak_memory_bytes or 0)
    cores, hits = node.cpu.granted_cores, cache_hits(room_bytes, here.num_bytes)

    def time_of(times: ReadTimes, *, is_copied: bool) -> Callable[[float], float]:
        def at(unread: float) -> float:
            # Copying has left in the page cache what fits there; a picture is decoded when it is
            # read for the first time.
            seen = 1.0 if is_copied else 0.0 if times.decodes_once else 1 - unread
            return sample_s(
                base_s, here, times, cores=cores, unread=unread, uncached=1 - seen * hits
            )

        return at

    copied = read_times(plan, facts, data, from_copy=True) if data.local is not None else None
    copy_s = None
    if data.local is not None and data.num_files is not None:
        copy_s = data.num_files / data.local.copy_files_per_s
    return InputCost(
        data=data,
        train_samples=facts.train_samples,
        validation_samples=facts.validation_samples,
        base_s=base_s,
        in_place_s=time_of(here, is_copied=False),
        copied_s=None if copied is None else time_of(copied, is_copied=True),
        copy_s=None if copied is None else copy_s,
        share=share,
    )

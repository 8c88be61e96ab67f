"""Time to read a sample: from its file, from the page cache, from decoded pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from launch.case_facts import CaseFacts
from launch.plan import Plan
from probes.hardware import DataSpeed, ReadRate

_LIMITED = 0.95
_ONE_FILE_EACH = 0.5
"""Files for each sample from which on every sample counts as a file of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTimes:
    """How a plan reads samples on one node. Times are of the node: of all its readers at once."""

    readers: int
    """Samples that are read at the same time."""

    is_ahead: bool
    """Whether loader processes read while the step computes."""

    decodes_once: bool
    """Whether a sample that was read stays decoded on a local disk."""

    decode_s: float
    """Time of one core to make a sample ready that is in memory."""

    cold_s: float
    """Time to read the files of a sample that are not in the page cache."""

    warm_s: float
    """The same from the page cache."""

    num_bytes: int
    """Of all files."""


def read_times(
    plan: Plan, facts: CaseFacts, data: DataSpeed, *, from_copy: bool = False
) -> ReadTimes | None:
    """Work out how a plan reads its data, or their copy on the local disk.

    Returns:
        ``None`` where too little is known.
    """
    samples = facts.train_samples + facts.validation_samples
    place = data.local if from_copy else data
    if data.num_files is None or data.num_bytes is None or place is None or not samples:
        return None
    files = data.num_files / samples
    if not place.cold or not place.warm or not data.warm or files < _ONE_FILE_EACH:
        return None  # of few large files, samples are pieces
    processes = min(plan.processes, plan.replicas)  # of a pipeline, its first stage alone reads
    decodes_once = plan.input != "files"
    # Where pictures are decoded once, each reading process decodes with its threads.
    threads = plan.threads_per_process if decodes_once else 1
    readers = processes * max(1, plan.loader_workers) * threads
    ready_s = facts.read_s or 0.0
    return ReadTimes(
        readers=readers,
        is_ahead=plan.loader_workers > 0,
        decodes_once=decodes_once,
        decode_s=max(0.0, ready_s - files * _seconds(data.warm, 1)),
        cold_s=files * _seconds(place.cold, readers),
        warm_s=files * _seconds(place.warm, readers),
        num_bytes=data.num_bytes,
    )


def sample_s(
    base_s: float,
    trial: ReadTimes,
    times: ReadTimes,
    *,
    cores: float,
    unread: float,
    uncached: float,
) -> float:
    """Give the seconds for each sample of a node.

    Args:
        base_s: Of trials, which found their samples in the page cache, or decoded.
        trial: How they read.
        times: How the training reads.
        cores: That decode and compute.
        unread: Part of the samples that must be decoded, where they are decoded once.
        uncached: Part of what is read that is not in the page cache.
    """
    wait_s = uncached * times.cold_s + (1 - uncached) * times.warm_s
    if times.decodes_once:
        # No plan has loader processes beside decoded pictures.
        return base_s + unread * (times.decode_s / min(times.readers, cores) + wait_s)
    if not times.is_ahead:
        return max(0.0, base_s - trial.warm_s) + wait_s
    decode_s = times.decode_s / times.readers
    # A trial that was as slow as its readers does not say how long its steps compute.
    was_reading = decode_s + trial.warm_s > _LIMITED * base_s
    return max(0.0 if was_reading else base_s, decode_s + wait_s)


def cache_hits(room_bytes: float, num_bytes: float) -> float:
    """Give the part of reads that find their file in a page cache, epoch after epoch.

    Each epoch has another order. A file is still there if what was read since is less than the
    room ``a``, as part of all: between place ``x`` of one epoch and ``y`` of the next these are
    ``1 - x (1 - y)`` of the files, so that the probability is ``a + (1 - a) ln (1 - a)``.
    """
    if num_bytes <= room_bytes:
        return 1.0
    part = max(0.0, room_bytes / num_bytes)
    return part + (1 - part) * math.log(1 - part)


def _seconds(rates: Sequence[ReadRate], readers: int) -> float:
    """Give the seconds for each file of all readers together.

    Between two measured numbers of readers the rate is on a line, beyond them it stays.
    """
    for low, high in pairwise(rates):
        if low.readers <= readers <= high.readers:
            part = (readers - low.readers) / (high.readers - low.readers)
            return 1 / (low.files_per_s + part * (high.files_per_s - low.files_per_s))
    return 1 / (rates[0] if readers < rates[0].readers else rates[-1]).files_per_s

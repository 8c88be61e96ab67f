"""Look-ahead: pictures that come next are read from the disk while the step computes.

For decoded pictures that are more than the memory holds. The order of the samples is known: the
kernel is told of the next batches, so that the disk never waits for a step, and the very next one
is copied, so that no step waits for the copy either.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from launch.data.decoded_pictures import DecodedPictures
from launch.data.split import Share, Work

_LEAST_BATCHES = 2
_AHEAD_BYTES = 64 << 20
"""So much fills the queue of any disk; the memory has room for it many times."""


def look_ahead(work: Work, dataset: DecodedPictures) -> Work:
    """Give the work of a loader, and announce the samples of the next batches to the data set.

    By threads of its own, which end with the iterator: a disk whose queue is full makes whoever
    adds to it wait.
    """
    most = max(1, _AHEAD_BYTES // max(1, dataset.sample_bytes))
    waiting: deque[Share] = deque()
    announced = 0
    with ExitStack() as at_end:
        announcing = ThreadPoolExecutor(1, "look-ahead")
        reading = ThreadPoolExecutor(1, "read-ahead")
        for pool in (announcing, reading):
            at_end.callback(pool.shutdown, cancel_futures=True)

        def give() -> Share:
            first = waiting.popleft()
            if waiting and waiting[0][0]:
                dataset.read_ahead(waiting[0][0], reading)
            return first

        for item in work:
            announced += len(item[0])
            waiting.append(item)
            announcing.submit(dataset.will_need, item[0])
            while len(waiting) > _LEAST_BATCHES and announced > most:
                announced -= len(waiting[0][0])
                yield give()
        while waiting:
            yield give()

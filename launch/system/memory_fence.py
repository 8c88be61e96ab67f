"""Fence between data in shared memory and the flag that says that they are there.

Who sets a flag that others poll calls it before, who has seen one calls it after: only then do both
agree, on every processor, on what is there. x86 keeps stores in order by itself; ARM and POWER do
not. Where a process sleeps on a descriptor and reads only after it was woken, none is needed: the
kernel takes the lock of that descriptor on both sides.

Python has no fence. A lock that is released and taken again is one, in about 0.2 us and without the
kernel: both are atomic operations with release and with acquire semantics, and no access before the
first or after the second may pass them. Neither alone would do, and nor would to take first and
release then: accesses may move into a critical section from both sides.

Sources: Arm Architecture Reference Manual DDI 0487, B2.3 "Barrier-ordered-before": what is before a
Store-Release is ordered before a later Load-Acquire and what follows that; for POWER, the sync of
a release in https://www.cl.cam.ac.uk/~pes20/cpp/cpp0xmappings.html; CPython makes the lock of
POSIX semaphores, ``sem_post`` and ``sem_wait`` of glibc (nptl/sem_post.c, sem_waitcommon.c), and
from 3.13 on of sequentially consistent exchanges (Python/lock.c); Linux, memory-barriers.txt,
"Inter-CPU acquiring barrier effects", for the descriptors.
"""

from __future__ import annotations

from threading import Lock


def fence() -> None:
    """Keep every access to memory before this call before every one after it."""
    lock = Lock()  # of its own: threads may call this at once
    lock.acquire()
    lock.release()
    lock.acquire()

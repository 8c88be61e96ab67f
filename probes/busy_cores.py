"""Busy cores: a process that computes, so that links are measured as they are beside a training.

A child process multiplies matrices and walks through memory, as a backward pass does, with a thread
for each core that may be used. It ends with its owner, however that ends: its standard input is
then closed.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import cycle

from probes.child_process import module_command
from probes.cpu import read_cpu
from probes.errors import LinkProbeError

_ORDER = 512
"""Of the matrices: a product takes some milliseconds, and all three stay in a core's cache."""

_WALK_NUMBERS = 1 << 21
"""8 MiB for each core, more than its own caches; a 16th of it in every round of products."""

_START_LIMIT_S = 60.0
"""To load NumPy, with a tenth of a core too."""

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)


class BusyCores:
    """A ``with`` block in which every core that may be used is busy.

    Raises:
        LinkProbeError: No process can be started that computes.
    """

    def __enter__(self) -> BusyCores:
        try:
            self._child = subprocess.Popen(
                module_command("probes.busy_cores", str(read_cpu().usable_cores)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=os.environ | _ONE_THREAD,
            )
        except OSError as error:
            raise LinkProbeError(f"nothing computes beside sums: {error.strerror}") from error
        try:
            self._wait_until_computing()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _wait_until_computing(self) -> None:
        assert self._child.stdout is not None
        if not select.select([self._child.stdout], [], [], _START_LIMIT_S)[0]:
            raise LinkProbeError(f"nothing computes beside sums after {_START_LIMIT_S:g} s")
        if not self._child.stdout.readline():
            _, errors = self._child.communicate()
            raise LinkProbeError(
                f"the process that computes beside sums ended with {self._child.returncode}: "
                f"{errors.decode(errors='replace').strip()[-500:]}"
            )

    def _end(self) -> None:
        self._child.kill()
        with contextlib.suppress(ValueError):  # its pipes were read and closed
            self._child.communicate()


def main() -> None:
    """Compute with so many threads until standard input is closed."""
    cores = int(sys.argv[1])
    try:  # here: of two threads that load a module that fails, one may be left with half of it
        import numpy  # noqa: F401
    except ImportError as error:
        sys.exit(repr(error))
    all_compute = threading.Barrier(cores + 1)
    for _ in range(cores):
        threading.Thread(target=_compute, args=[all_compute], daemon=True).start()
    try:
        all_compute.wait()
    except threading.BrokenBarrierError:
        sys.stderr.flush()
        os._exit(1)  # a thread has written why it cannot compute
    sys.stdout.write("computing\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # threads are in the middle of a product


def _compute(all_compute: threading.Barrier) -> None:
    try:
        rounds = _rounds()
        next(rounds)
    except MemoryError as error:
        sys.stderr.write(f"{error!r}\n")
        all_compute.abort()
        return
    all_compute.wait()
    for _ in rounds:
        pass


def _rounds() -> Iterator[None]:
    """Compute without end, in rounds."""
    import numpy as np  # late: the owner of this process does not need it

    factor = np.full((_ORDER, _ORDER), 0.5, np.float32)
    product = np.empty_like(factor)
    walk = np.zeros(_WALK_NUMBERS, np.float32)
    for part in cycle(np.split(walk, 16)):
        for _ in range(4):
            np.matmul(factor, factor, out=product)
        part += 1
        yield


if __name__ == "__main__":
    main()

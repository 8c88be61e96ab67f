"""Cores that compute, so that what is measured meanwhile is as it is beside a training.

A child process multiplies matrices and walks through memory, as a backward pass does, with a thread
for each core that may be used. It ends with its owner, however that ends: its standard input is
then closed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from types import TracebackType

from probes.children import module_command
from probes.cpu import read_cpu
from probes.errors import LinkProbeError

_ORDER = 512
"""Of the matrices: a product takes some milliseconds, and all three stay in a core's cache."""

_WALK_NUMBERS = 1 << 23
"""32 MiB for each core, more than its caches hold; a 16th of it between two rounds of products."""

_ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1"
)


class BusyCores:
    """Keeps every core busy that may be used, from entering to leaving it.

    Raises:
        LinkProbeError: The child process ended before it computed.
    """

    def __enter__(self) -> BusyCores:
        self._child = subprocess.Popen(
            module_command("probes.busy_cores", str(read_cpu().usable_cores)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | _ONE_THREAD,
        )
        try:
            assert self._child.stdout is not None
            if not self._child.stdout.readline():
                _, errors = self._child.communicate()
                raise LinkProbeError(
                    f"the process that computes beside sums ended with {self._child.returncode}: "
                    f"{errors.decode(errors='replace').strip()[-500:]}"
                )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        self._child.kill()
        with contextlib.suppress(ValueError):  # its pipes were read and closed
            self._child.communicate()


def main() -> None:
    """Compute with so many threads until standard input is closed."""
    cores = int(sys.argv[1])
    for _ in range(cores):
        threading.Thread(target=_compute, daemon=True).start()
    sys.stdout.write("computing\n")
    sys.stdout.flush()
    sys.stdin.read()
    os._exit(0)  # threads are in the middle of a product


def _compute() -> None:
    import numpy as np  # late: the owner of this process has no use for it here

    factor = np.full((_ORDER, _ORDER), 0.5, np.float32)
    product = np.empty_like(factor)
    walk = np.zeros(_WALK_NUMBERS, np.float32)
    while True:
        for part in np.split(walk, 16):
            for _ in range(4):
                np.matmul(factor, factor, out=product)
            part += 1


if __name__ == "__main__":
    main()

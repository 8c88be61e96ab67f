"""A rank that looks at what it uses as often as it is told to: every so many seconds, or never.

``python -m mpi4py -m _sampled_rank EVERY_S JOB``
"""

from __future__ import annotations

import sys
from pathlib import Path

from launch.rank import node, rank, usage
from probes.sampling import host_sampler


class _NoReporter(usage.UsageReporter):
    """Samples nothing."""

    def poll(self, *, is_last: bool = False) -> None:
        """Report nothing."""


def main() -> int:
    """Run the rank."""
    every_s = float(sys.argv[1])
    if not every_s:
        node.UsageReporter = _NoReporter  # type: ignore[attr-defined]
    elif every_s < 1:
        node._POLL_S = every_s
        usage.EVERY_S = every_s
        host_sampler.PART = 1.0
    return rank.main(Path(sys.argv[2]))


if __name__ == "__main__":
    sys.exit(main())

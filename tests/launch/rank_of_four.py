"""A rank whose node has four cores, whatever this machine has: each stands for several."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from launch.rank import main
from probes.hardware import CoreLimit, Cpu

usable = sorted(os.sched_getaffinity(0))
FOUR = Cpu(
    architecture="x86_64",
    logical_cores=4,
    usable_cores=4,
    core_ids=(usable[0], usable[-1]) * 2,
    limits=(CoreLimit(source="test", cores=4),),
)

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), FOUR))

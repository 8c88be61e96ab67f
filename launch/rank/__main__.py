"""The program of a rank: ``python -m mpi4py -m launch.rank JOB``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from launch.rank.rank import main

if status := main(Path(sys.argv[1])):
    os._exit(status)  # not by MPI, which would wait for the other ranks

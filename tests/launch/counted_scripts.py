"""Scripts that run to their end as `launch` runs them: with the shim, and their steps counted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from launch.scripts.environment import SHIM
from launch.scripts.program import Program
from launch.scripts.shim import VARIABLE
from launch.scripts.step_counter import CountedSteps, StepCounter


def run_counted(folder: Path, *arguments: str) -> tuple[int, CountedSteps | None]:
    """Run a Python script in a folder; give its exit code and its steps."""
    with StepCounter() as counter:
        code = run_watched(counter, folder, *arguments)
    return code, counter.result()


def run_watched(counter: StepCounter, folder: Path, *arguments: str) -> int:
    """Run a Python script in a folder under a counter; give its exit code."""
    words = (sys.executable, *arguments)
    done = subprocess.run(
        Program(arguments=words).with_shim(words, SHIM),
        env={**os.environ, VARIABLE: json.dumps(dict(counter.settings))},
        cwd=folder,
    )
    return done.returncode

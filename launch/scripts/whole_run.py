"""Whole run: a program whose steps are not seen; one step is one run from start to end."""

from __future__ import annotations

import os
import time
from pathlib import Path

from launch.errors import ScriptFailedError
from launch.plan import Plan
from launch.scripts.environment import make_start
from launch.scripts.program import Program
from launch.scripts.rank_steps import StepSeen
from launch.scripts.script_process import ScriptProcess
from launch.scripts.working_folder import open_working_folder
from probes.hardware import Hardware

_POLL_S = 0.2


class WholeRun:
    """A program that is run from its start to its end for each step.

    Each run has a private view of the folder of its own. Nothing runs between two steps.
    """

    recognised = None
    first_losses: tuple[float | None, ...] = ()

    def __init__(
        self,
        program: Program,
        plan: Plan,
        node: Hardware,
        *,
        folder: Path | None = None,
        in_place: bool = False,
    ) -> None:
        self._program, self._plan, self._node = program, plan, node
        self._folder, self._in_place = folder or Path.cwd(), in_place
        self.pids: list[int] = []
        """Its processes: none between two steps."""
        self.output_tail = ""

    def __enter__(self) -> WholeRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def make_steps(self, count: int, *, time_limit_s: float) -> list[StepSeen]:
        """Run it so many times.

        Raises:
            InvalidPlanError: The node lacks what the plan asks for.
            ScriptError: The command names something that is not there.
            ScriptFailedError: It failed, or its time is up.
        """
        deadline = time.monotonic() + time_limit_s
        return [self._run(deadline) for _ in range(count)]

    def close(self) -> None:
        """Do nothing: no process is left after a step."""

    def _run(self, deadline: float) -> StepSeen:
        start = make_start(self._program, self._plan, self._node)
        with open_working_folder(self._folder, in_place=self._in_place) as view:
            variables = {**os.environ, **start.started_environment}
            path = variables.get("PATH")
            self._program.check(start.command, view.path, path, is_python=False)
            process = ScriptProcess(start.started_command, variables, view, cores=start.cores)
            try:
                while process.exit_code is None:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        raise ScriptFailedError(
                            "it has not come to its end within the time limit: raise --budget",
                            process.output_tail,
                            is_time_limit=True,
                        )
                    process.read(min(left_s, _POLL_S))
                if process.exit_code != 0 or process.time_s is None:
                    raise process.failure()
                time_s = process.time_s
            finally:
                process.close()
                self.output_tail = process.output_tail
        return StepSeen(time_s=time_s, samples=1)

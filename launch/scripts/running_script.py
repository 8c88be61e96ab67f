"""Running script: a program that makes steps when it is told to, and stands still between."""

from __future__ import annotations

import os
import re
import select
import shlex
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from socket import socket

from launch.errors import ScriptEndedError, ScriptError, ScriptFailedError, ScriptRefusedError
from launch.plan import Plan
from launch.scripts.environment import NO_PYTHON, make_start
from launch.scripts.program import Program
from launch.scripts.rank_channel import RankChannel
from launch.scripts.rank_steps import (
    StepSeen,
    check_against_plan,
    describe_hidden,
    find_other_training,
    find_work_after_steps,
    recognise_steps,
    take_steps,
)
from launch.scripts.recognition import MOST_EVENTS, RecognisedSteps
from launch.scripts.script_process import ScriptProcess
from launch.scripts.shim import LOST_CONNECTION
from launch.scripts.working_folder import open_working_folder
from probes.hardware import Hardware

_FIRST_EVENTS = 3
_ANY = -1
_POLL_S = 0.2
_UNSEEN_RANK_S = 20.0
"""Time that a rank may begin after another one."""

_UNSEEN_STEP_S = 10.0
"""Time that many batches may stand without a step: a script may look at its data before."""

_WITHOUT_END = 2**53
_NO_OPTIMIZER = ", or use --step-regex where it trains without an optimizer of torch"
_MORE_STEPS = "let it make more steps, or pass --no-python to time whole runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """One whole run of a script."""

    time_s: float
    """From its start to its end, or to the last step that was wanted."""

    steps: tuple[StepSeen, ...]
    """Those after the first."""


class RunningScript:
    """The processes of one start of a script. Use it in a ``with`` block; leaving it ends them.

    The script runs at once, up to the end of its first step, where it waits. It runs in a private
    view of its folder, and is ended by SIGINT, as by Ctrl-C; then by SIGTERM and SIGKILL.

    Args:
        program: What runs.
        plan: With an option for each placeholder.
        node: This machine.
        folder: The user's current folder.
        in_place: Whether it runs in the folder itself.
        step_regex: Counts lines of its output as steps; ``None``: steps of its optimizers.
        seed: Of its random numbers where it sets none, so that its losses are those of another
            run; ``None``: they are its own.

    Raises:
        InvalidPlanError: The node lacks what the plan asks for.
        ScriptError: The command names something that is not there.
        ScriptFailedError: It cannot be started.
    """

    def __init__(
        self,
        program: Program,
        plan: Plan,
        node: Hardware,
        *,
        folder: Path | None = None,
        in_place: bool = False,
        step_regex: str | None = None,
        seed: int | None = None,
    ) -> None:
        self._program, self._plan = program, plan
        self.recognised: RecognisedSteps | None = None
        """What a step is; ``None`` before the first turn."""
        self._lines: list[float] = []
        self._has_matched = False
        self._pattern = None if step_regex is None else compile_step_regex(step_regex)
        self._began = time.perf_counter()
        self.first_losses: tuple[float | None, ...] = ()
        """Of the first steps of all, to hold a patched script against the user's own."""
        with ExitStack() as opened:
            self._channel = RankChannel()
            opened.callback(self._channel.close)
            watch = dict[str, object](self._channel.settings if self._pattern is None else {})
            if watch and seed is not None:
                watch["seed"] = seed
            start = make_start(program, plan, node, watch=watch)
            view = opened.enter_context(
                open_working_folder(folder or Path.cwd(), in_place=in_place)
            )
            variables = {**os.environ, **start.started_environment}
            path, is_python = variables.get("PATH"), not plan.options.get(NO_PYTHON)
            program.check(start.command, view.path, path, is_python=is_python)
            if self._pattern is not None:
                variables["PYTHONUNBUFFERED"] = "1"  # lines are timed when they come
            self._process = ScriptProcess(
                start.started_command,
                variables,
                view,
                cores=start.cores,
                on_line=None if self._pattern is None else self._note_line,
            )
            opened.callback(self._process.close)
            self._opened = opened.pop_all()

    def __enter__(self) -> RunningScript:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """Its processes now."""
        return self._process.pids

    @property
    def output_tail(self) -> str:
        """The last of what it wrote."""
        return self._process.output_tail

    def make_steps(self, count: int, *, time_limit_s: float) -> list[StepSeen]:
        """Make so many steps, and stand still again.

        The first call also recognises what a step is, and may give more steps for that.

        Args:
            count: Of the steps, at least 1.
            time_limit_s: Wall time for all of them.

        Raises:
            ScriptRefusedError: Its steps cannot be told, or are not those of the plan, or are not
                what takes its time.
            ScriptEndedError: It came to its own end before.
            ScriptFailedError: It failed, or its time is up.
        """
        deadline = time.monotonic() + time_limit_s
        self._process.resume()
        try:
            if self._pattern is not None:
                return self._make_lines(count, deadline)
            if self.recognised is None:
                steps = self._recognise(deadline)
                missing = count - len(steps)
                return steps + (self._make(missing, deadline) if missing > 0 else [])
            return self._make(count, deadline)
        finally:
            self._process.suspend({rank.pid for rank in self._channel.ranks})
            # Lines that came while it stopped are no steps of the next turn.
            self._process.read_output(64)

    def finish(self, *, time_limit_s: float) -> FinishedRun:
        """Let it run to its own end; give all steps after the first.

        Raises:
            ScriptRefusedError: Its steps cannot be told.
            ScriptFailedError: It failed, or its time is up.
        """
        deadline = time.monotonic() + time_limit_s
        steps = self.make_steps(1, time_limit_s=time_limit_s)
        self._process.resume()
        if self.recognised is not None:
            for rank in self._channel.ranks:
                rank.permit(_WITHOUT_END, self.recognised.boundary)
        while self._process.exit_code is None:
            self._poll(deadline, "to its end", may_end=True)
        time_s = time.perf_counter() - self._began
        if self._process.exit_code != 0:
            raise self._process.failure()
        for rank in self._channel.ranks:
            while not rank.has_ended:
                self._poll(deadline, "to its end", may_end=True)
        if self.recognised is not None:
            steps += self._take(None)
        return FinishedRun(time_s=time_s, steps=tuple(steps))

    def close(self) -> None:
        """End all its processes and remove its folder."""
        self._opened.close()

    def _recognise(self, deadline: float) -> list[StepSeen]:
        """Run the script until its steps are recognised; give the whole steps that it made."""
        self._await_ranks(deadline)
        wanted = _FIRST_EVENTS
        while True:
            ranks = self._channel.ranks
            self._permit(wanted - min(len(rank.events) for rank in ranks), _ANY, deadline)
            ranks = self._channel.ranks
            first = ranks[0]
            seen = recognise_steps(ranks)
            if seen is not None:
                break
            wanted = min(2 * wanted, MOST_EVENTS)
        self._refuse_unconnected(max(rank.world for rank in ranks))
        check_against_plan(seen, ranks, self._program, self._plan)
        self.recognised = seen
        self.first_losses = tuple(event.loss for event in first.events[:_FIRST_EVENTS])
        # The first event has no begin, and what precedes the first whole round is start-up.
        for rank in ranks:
            ends = [n for n, e in enumerate(rank.events) if e.optimizer == seen.boundary]
            del rank.events[: ends[0] + 1]
        return self._take(None)

    def _await_ranks(self, deadline: float) -> None:
        """Wait until every rank has made its first step."""
        late: float | None = None
        unseen_since: float | None = None
        while True:
            ranks = self._channel.ranks
            if ranks and all(rank.waits for rank in ranks):
                world = max(rank.world for rank in ranks)
                if len(ranks) >= world:
                    break
                late = late or time.monotonic()
                if time.monotonic() > late + _UNSEEN_RANK_S:
                    raise ScriptRefusedError(
                        f"{world} ranks and steps of {len(ranks)} seen: start all by torchrun, "
                        "or pass --no-python to time whole runs",
                        self.output_tail,
                    )
            now = time.monotonic()
            unseen_since = (unseen_since or now) if self._unseen_batches else None
            if unseen_since is not None and now > unseen_since + _UNSEEN_STEP_S:
                self._refuse_unseen()
            self._poll(deadline, "to its first step")

    @property
    def _unseen_batches(self) -> int:
        return sum(rank.unseen_batches for rank in self._channel.ranks)

    def _refuse_unseen(self) -> None:
        """Refuse a script that reads more batches than for a step, and whose steps do not show."""
        seen, count = self.recognised, self._unseen_batches
        if count > (0 if seen is None else seen.batches_per_step * seen.readers):
            has_stepped = any(rank.optimizers for rank in self._channel.ranks)
            self._refuse(describe_hidden(count, has_stepped=has_stepped))

    def _refuse_unconnected(self, most: int) -> None:
        """Refuse processes that make steps beside each other, of which any may come late."""
        if (count := len(self._channel.ranks)) > most:
            raise ScriptRefusedError(
                f"{count} processes make steps on their own, without torch.distributed: use "
                "--step-regex on a line that it prints",
                self.output_tail,
            )

    def _make(self, count: int, deadline: float) -> list[StepSeen]:
        assert self.recognised is not None
        self._permit(count, self.recognised.boundary, deadline)
        self._refuse_unconnected(self.recognised.ranks)
        return self._take(count)

    def _permit(self, count: int, boundary: int, deadline: float) -> None:
        """Let all ranks make so many steps, and wait until all wait again."""
        if count <= 0:
            return
        for rank in self._channel.ranks:
            rank.permit(count, boundary)
        goal = "to the end of a step" if count == 1 else f"to the end of {count} steps"
        while not all(rank.waits for rank in self._channel.ranks):
            if self.recognised is not None and boundary != _ANY:
                self._refuse(find_other_training(self._channel.ranks, self.recognised))
            self._poll(deadline, goal)

    def _take(self, count: int | None) -> list[StepSeen]:
        assert self.recognised is not None
        return take_steps(self._channel.ranks, self.recognised, count, self.output_tail)

    def _refuse(self, reason: str | None) -> None:
        if reason is not None:
            raise ScriptRefusedError(reason, self.output_tail)

    def _make_lines(self, count: int, deadline: float) -> list[StepSeen]:
        """Time lines of its output: from the first of this turn on, which ends a cut step."""
        self._lines.clear()
        while len(self._lines) <= count:
            if self._process.exit_code is not None:
                self._process.read_output(64)
                seen = len(self._lines)
                why = f"{seen} of the {count + 1} lines that are needed match --step-regex"
                if not self._has_matched and self._process.exit_code == 0:
                    self._refuse(self._no_line)
                if self._process.exit_code == 0 and seen:
                    raise ScriptEndedError(f"the script has ended, {why}", self.output_tail)
                raise self._process.failure(why)
            if not self._has_matched and time.monotonic() >= deadline:
                why = f"{self._no_line}, or raise --budget where its steps begin late"
                raise ScriptFailedError(why, self.output_tail, is_time_limit=True)
            self._poll(deadline, f"to {count + 1} lines that match --step-regex")
        ends = self._lines[: count + 1]
        return [StepSeen(time_s=b - a) for a, b in pairwise(ends)]

    @property
    def _no_line(self) -> str:
        assert self._pattern is not None
        return (
            f"no line of its output matches --step-regex {shlex.quote(self._pattern.pattern)}: "
            "give one that matches a line for each step, or use --no-python to time whole runs"
        )

    def _note_line(self, line: str, now: float) -> None:
        assert self._pattern is not None
        if self._pattern.search(line):
            self._has_matched = True
            self._lines.append(now)

    def _poll(self, deadline: float, goal: str, *, may_end: bool = False) -> None:
        """Take what comes within a moment; raise where the time is up, or it ends and may not."""
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            self._refuse_unseen()
            other = "" if self._pattern or self._channel.ranks else _NO_OPTIMIZER
            raise ScriptFailedError(
                f"it has not come {goal} within the time limit: raise --budget{other}",
                self.output_tail,
                is_time_limit=True,
            )
        files: list[socket | int] = [*self._channel.readable, self._process.answers.fileno()]
        if self._process.output is not None:
            files.append(self._process.output)
        ready = select.select(files, [], [], min(left_s, _POLL_S))[0]
        for file in ready:
            if not isinstance(file, int):
                self._channel.read(file)
        if any(isinstance(file, int) for file in ready):
            self._process.read(0.0)
        if not may_end and (not ready or self._process.exit_code is not None):
            self._check_end(goal)

    def _check_end(self, goal: str) -> None:
        """Raise where it has ended, once all that it told was taken."""
        ended = self._process.exit_code
        if ended is None:
            return
        if select.select(self._channel.readable, [], [], 0.0)[0]:
            return
        if ended == 0 and any(not rank.has_ended for rank in self._channel.ranks):
            return  # a daemon of it trains
        if ended == LOST_CONNECTION:
            why = "it has closed all its files, ddlplan's too (use --step-regex or --no-python)"
            raise self._process.failure(why)
        if ended == 0 and self.recognised is not None:
            self._refuse(find_work_after_steps(self._channel.ranks[0], self.recognised))
            raise ScriptEndedError(
                f"it came to its own end, and not {goal}: {_MORE_STEPS}", self.output_tail
            )
        if ended == 0 and self._pattern is None:
            self._refuse_unseen()
            why = f"it has not come {goal}: {_MORE_STEPS}"
            if not self._channel.ranks:
                why = (
                    "no step of an optimizer seen: use --step-regex on a line that it prints for "
                    "each step, or --no-python to time whole runs"
                )
            raise self._process.failure(why)
        if ended != 0:
            raise self._process.failure()


def compile_step_regex(text: str) -> re.Pattern[str]:
    """Compile what matches the lines that are steps.

    Raises:
        ScriptError: It is no regular expression, or it is empty.
    """
    if not text:
        raise ScriptError("--step-regex '': it matches every line: name what a step prints")
    try:
        return re.compile(text)
    except re.error as error:
        raise ScriptError(f"--step-regex {shlex.quote(text)}: {error}: see Python's re") from error

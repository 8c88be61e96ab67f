"""Running script: a program that makes steps when it is told to, and stands still between."""

from __future__ import annotations

import os
import re
import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from socket import socket

from launch.errors import (
    ScriptEndedError,
    ScriptError,
    ScriptFailedError,
    ScriptRefusedError,
)
from launch.plan import Plan
from launch.scripts.environment import (
    OWN_SETTINGS,
    PATCH_PREFIX,
    make_start,
    patches_of,
    placeholder_values,
)
from launch.scripts.program import BATCH, PROCESSES, THREADS, WORKERS, Program
from launch.scripts.rank_channel import Rank, RankChannel
from launch.scripts.recognition import (
    MOST_EVENTS,
    OptimizerEvent,
    RecognisedSteps,
    check_batch,
    recognise,
)
from launch.scripts.script_process import ScriptProcess
from launch.scripts.shim import LOST_CONNECTION
from launch.scripts.working_folder import open_working_folder
from probes.hardware import Hardware

_FIRST_EVENTS = 3
_ANY = -1
_POLL_S = 0.2
_UNSEEN_RANK_S = 20.0
"""Time that a rank may begin after another one."""

_WITHOUT_END = 2**53

_MOST_REST = 0.05
"""Part of the time of a run, from its first step on, that may lie after its last step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """A step of a script, over all its ranks."""

    time_s: float
    """From the end of the step before; of the first in a turn, from the turn's begin."""

    samples: int | None = None
    """Read for it; ``None`` where no data loader was seen."""

    input_s: float | None = None
    """Part in which the slowest rank waited for its data loaders."""

    has_other_work: bool = False
    """Whether a validation was read, or an epoch begun, since the step before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """One whole run of a script."""

    time_s: float
    """From its start to its end, or to the last step that was wanted."""

    start_up_s: float
    """From its start to the end of its first step."""

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
        on_poll: Called some times a second while something is waited for; what it raises ends that.
        environment: Variables of the user.

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
        on_poll: Callable[[], None] = lambda: None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._program, self._plan, self._on_poll = program, plan, on_poll
        self.recognised: RecognisedSteps | None = None
        """What a step is; ``None`` before the first turn."""
        self._lines: list[float] = []
        self._pattern = None if step_regex is None else compile_step_regex(step_regex)
        self._began = time.perf_counter()
        self.first_losses: tuple[float | None, ...] = ()
        """Of the first steps of all, to hold a patched script against the user's own."""
        with ExitStack() as opened:
            self._channel = RankChannel()
            opened.callback(self._channel.close)
            watch = self._channel.settings if self._pattern is None else {}
            start = make_start(program, plan, node, environment, watch=watch)
            view = opened.enter_context(
                open_working_folder(folder or Path.cwd(), in_place=in_place)
            )
            variables = {**environment, **start.environment}
            program.check(start.command, view.path, variables.get("PATH"))
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
        start_up_s = time.perf_counter() - self._began - sum(step.time_s for step in steps)
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
            steps += self._take_steps(None)
        return FinishedRun(time_s=time_s, start_up_s=start_up_s, steps=tuple(steps))

    def close(self) -> None:
        """End all its processes and remove its folder."""
        self._opened.close()

    def _recognise(self, deadline: float) -> list[StepSeen]:
        """Let it make the steps that show what a step is; give those of them that are whole."""
        self._await_ranks(deadline)
        wanted = _FIRST_EVENTS
        while True:
            ranks = self._channel.ranks
            self._permit(wanted - min(len(rank.events) for rank in ranks), _ANY, deadline)
            ranks = self._channel.ranks
            first = ranks[0]
            seen = recognise(first.events, first.optimizers, ranks=len(ranks))
            if seen is not None:
                break
            wanted = min(2 * wanted, MOST_EVENTS)
        self._check(seen, ranks)
        self.recognised = seen
        self.first_losses = tuple(event.loss for event in first.events[:_FIRST_EVENTS])
        # The first event has no begin, and what precedes the first whole round is start-up.
        for rank in ranks:
            ends = [n for n, e in enumerate(rank.events) if e.optimizer == seen.boundary]
            del rank.events[: ends[0] + 1]
        return self._take_steps(None)

    def _await_ranks(self, deadline: float) -> None:
        """Wait until every rank has made its first step."""
        late: float | None = None
        while True:
            ranks = self._channel.ranks
            if ranks and all(rank.waits for rank in ranks):
                world = max(rank.world for rank in ranks)
                if len(ranks) >= world:
                    break
                late = late or time.monotonic()
                if time.monotonic() > late + _UNSEEN_RANK_S:
                    raise ScriptRefusedError(
                        f"{world} ranks and steps of {len(ranks)} seen: start them by torchrun",
                        self.output_tail,
                    )
            unseen = sum(rank.unseen_batches for rank in ranks)
            if unseen:
                raise ScriptRefusedError(
                    f"{unseen} batches read and no step of an optimizer seen (a CUDA graph hides "
                    "its steps): use --step-regex on a line that it prints, or --no-python",
                    self.output_tail,
                )
            self._poll(deadline, "to its first step")
        if len(ranks) > max(rank.world for rank in ranks):
            self._refuse_unconnected(len(ranks))

    def _refuse_unconnected(self, count: int) -> None:
        raise ScriptRefusedError(
            f"{count} processes make steps on their own, without torch.distributed: use "
            "--step-regex on a line that it prints",
            self.output_tail,
        )

    def _check(self, seen: RecognisedSteps, ranks: Sequence[Rank]) -> None:
        """Check that the script does what the plan says."""
        values = placeholder_values(self._program, self._plan)
        batch = values.get(BATCH)
        check_batch(seen, batch if isinstance(batch, int) else None)
        first = ranks[0]
        trained = {f.loader for e in first.events for f in e.trained}
        workers = {first.loaders[n].workers for n in trained if n in first.loaders}
        if WORKERS in values and workers and values[WORKERS] not in workers:
            raise ScriptRefusedError(
                f"workers={values[WORKERS]} and its data loader has {min(workers)}: it does not "
                "follow {workers}"
            )
        if PROCESSES in values and values[PROCESSES] != len(ranks):
            raise ScriptRefusedError(
                f"processes={values[PROCESSES]} and {len(ranks)} make steps: it does not follow "
                "{processes}"
            )
        unchanged = patches_of(self._plan).keys() - first.patched
        if unchanged:
            raise ScriptRefusedError(
                f"{PATCH_PREFIX}{min(unchanged)} changes nothing in this script: leave it out"
            )
        is_set = THREADS in values or not self._plan.options.get(OWN_SETTINGS)
        threads = self._plan.threads_per_process
        if is_set and first.threads is not None and first.threads != threads:
            raise ScriptRefusedError(
                f"threads_per_process={threads} and torch has {first.threads}: leave out "
                "torch.set_num_threads, or write {threads} into the command"
            )

    def _make(self, count: int, deadline: float) -> list[StepSeen]:
        assert self.recognised is not None
        self._permit(count, self.recognised.boundary, deadline)
        if len(self._channel.ranks) > self.recognised.ranks:
            self._refuse_unconnected(len(self._channel.ranks))
        return self._take_steps(count)

    def _permit(self, count: int, boundary: int, deadline: float) -> None:
        """Let all ranks make so many steps, and wait until all wait again."""
        if count <= 0:
            return
        for rank in self._channel.ranks:
            rank.permit(count, boundary)
        while not all(rank.waits for rank in self._channel.ranks):
            self._check_round(boundary)
            self._poll(deadline, f"to the end of {count} steps")

    def _check_rest(self) -> None:
        """Refuse a script that works outside of its steps: they do not tell how long it takes."""
        first = self._channel.ranks[0]
        if first.rest_s is None:  # it has not left as Python does
            return
        total_s = first.steps_s + first.rest_s
        if first.rest_s > _MOST_REST * total_s:
            raise ScriptRefusedError(
                f"a run took {total_s:.3g} s from its first step on, and its steps "
                f"{first.steps_s:.3g} s: {first.rest_s / total_s:.0%} is work after the last step: "
                "let it make more steps, or pass --no-python to time whole runs",
                self.output_tail,
            )

    def _check_round(self, boundary: int) -> None:
        if boundary == _ANY or self.recognised is None:
            return
        for rank in self._channel.ranks:
            others = set(rank.optimizers) - set(self.recognised.round)
            ended = [n for n in others if n >= len(self.recognised.optimizers)]
            if ended:
                raise ScriptRefusedError(
                    f"another optimizer, {rank.optimizers[ended[0]]}, has begun to step: only one "
                    "training of a script can be measured",
                    self.output_tail,
                )

    def _take_steps(self, count: int | None) -> list[StepSeen]:
        """Take whole steps out of the ranks' events, and check their batches."""
        assert self.recognised is not None
        by_rank = [_split(rank, self.recognised.boundary) for rank in self._channel.ranks]
        number = min(map(len, by_rank)) if by_rank else 0
        if count is not None:
            number = min(number, count)
        by_rank = [steps[:number] for steps in by_rank]
        self._check_sizes(by_rank)
        totals = [sum(e.time_s for step in steps for e in step) for steps in by_rank]
        slowest = totals.index(max(totals)) if totals else 0
        is_async = any(rank.is_async for rank in self._channel.ranks)
        mean_s = max(totals) / number if totals and number else 0.0
        made = []
        for at in range(number):
            own = by_rank[slowest][at]
            fetches = [f for steps in by_rank for e in steps[at] for f in e.trained]
            sizes = [None if f.size is None else f.size * f.count for f in fetches]
            known = [size for size in sizes if size is not None]
            made.append(
                StepSeen(
                    # On a GPU only the end of a turn is an end of work.
                    time_s=mean_s if is_async else sum(e.time_s for e in own),
                    samples=sum(known) if known and len(known) == len(sizes) else None,
                    input_s=sum(e.input_s for e in own),
                    has_other_work=any(
                        e.begins_epoch or len(e.trained) < len(e.fetches) for e in own
                    ),
                )
            )
        return made

    def _check_sizes(self, by_rank: list[list[list[OptimizerEvent]]]) -> None:
        """Refuse a script that has gone over to another batch."""
        assert self.recognised is not None
        expected = self.recognised.batch_size
        if expected is None:
            return
        for steps in by_rank:
            for event in (event for step in steps for event in step):
                larger = [f.size for f in event.trained if f.size is None or f.size > expected]
                if larger:
                    raise ScriptRefusedError(
                        f"batches of {expected} and then of {larger[0]}: its batch changes, so "
                        "that its steps are not comparable: fix the batch",
                        self.output_tail,
                    )

    def _make_lines(self, count: int, deadline: float) -> list[StepSeen]:
        """Time lines of its output: from the first of this turn on, which ends a cut step."""
        self._lines.clear()
        while len(self._lines) <= count:
            if self._process.exit_code is not None:
                self._process.read_output(64)
                seen = len(self._lines)
                why = f"{seen} lines of {count + 1} match --step-regex"
                if self._process.exit_code == 0 and seen:
                    raise ScriptEndedError(f"it ended, {why}", self.output_tail)
                raise self._process.failure(why)
            self._poll(deadline, f"to {count + 1} lines that match --step-regex")
        ends = self._lines[: count + 1]
        return [StepSeen(time_s=b - a) for a, b in pairwise(ends)]

    def _note_line(self, line: str, now: float) -> None:
        assert self._pattern is not None
        if self._pattern.search(line):
            self._lines.append(now)

    def _poll(self, deadline: float, goal: str, *, may_end: bool = False) -> None:
        """Take what comes within a moment; raise where the time is up, or it ends and may not."""
        self._on_poll()
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise ScriptFailedError(
                f"not {goal} within the time limit: raise --budget",
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
            raise self._process.failure("it has closed all its files, ddlplan's among them")
        if ended == 0 and self.recognised is not None:
            self._check_rest()
            raise ScriptEndedError(
                f"it came to its own end, and not {goal}: let it make more steps, or pass "
                "--no-python to time whole runs",
                self.output_tail,
            )
        if ended == 0 and self._pattern is None:
            why = f"it has not come {goal}"
            if not self._channel.ranks:
                why = "no step of an optimizer seen: use --no-python to time whole runs"
            raise self._process.failure(why)
        if ended != 0:
            raise self._process.failure()


def compile_step_regex(text: str) -> re.Pattern[str]:
    """Compile what matches the lines that are steps.

    Raises:
        ScriptError: It is no regular expression.
    """
    try:
        return re.compile(text)
    except re.error as error:
        raise ScriptError(f"step_regex={text!r}: {error}: see Python's re") from error


def _split(rank: Rank, boundary: int) -> list[list[OptimizerEvent]]:
    """Take a rank's whole steps; what is left of the next one stays."""
    steps: list[list[OptimizerEvent]] = []
    step: list[OptimizerEvent] = []
    for event in rank.events:
        step.append(event)
        if event.optimizer == boundary:
            steps.append(step)
            step = []
    rank.events = step
    return steps

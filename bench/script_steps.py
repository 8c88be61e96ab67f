"""Times of scripts' steps as seen from outside, against a stopwatch put in by hand.

Ten kinds of scripts, in `bench/step_scripts`, each with a stopwatch that it prints. What is seen of
its steps is held against the stopwatch of the same run, in blocks of 10 steps. What the shim costs
is measured inside of one run as well, because two starts of one script differ by more: the
stopwatch takes out what the shim has put into torch, and puts it back, in alternating blocks. A
kind whose library is missing is named and left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean, median

from _block import (
    BenchError,
    Output,
    Required,
    Result,
    make_parser,
    mean_difference,
    positive,
    run_bench,
)

from launch.errors import ScriptFailedError, ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import FinishedRun, RunningScript
from probes.hardware import Hardware
from probes.node import probe

SCRIPTS = Path(__file__).with_name("step_scripts")
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_LIMIT_S = 600.0
_BLOCK, _WARMUP_BLOCKS, _SEEN_BLOCKS = 10, 4, 20
_BLOCK_VARIABLE = "STOPWATCH_BLOCK"
_PLAN = Plan(strategy="script", node_batch=1, options={"own_settings": True})
_INTERRUPTED = 1.5
"""Laps that take so many times the usual one were interrupted."""

_SEEN_PART, _COST_PART = 0.03, 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of script."""

    words: tuple[str, ...]
    library: str | None = None
    is_refused: bool = False

    @property
    def name(self) -> str:
        """Of its file."""
        return Path(self.words[-1]).stem


KINDS = (
    Kind(words=("plain.py",)),
    Kind(words=("accumulation.py",)),
    Kind(words=("amp.py",)),
    Kind(words=("with_accelerate.py",), library="accelerate"),
    Kind(words=("with_lightning.py",), library="lightning"),
    Kind(words=("with_transformers.py",), library="transformers"),
    Kind(words=("gan.py",)),
    Kind(words=(*_TORCHRUN, "ranks.py")),
    Kind(words=("spawn.py",)),
    Kind(words=("hidden.py",), is_refused=True),
)


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=positive, default=100, help="with and without shim (100)")
    parser.add_argument("--only", help="name of one kind")
    arguments = parser.parse_args()
    out = Output("script_steps", as_json=arguments.json)
    out.introduce()
    node = probe(quick=True)
    results: list[Result] = []
    for kind in KINDS:
        if arguments.only not in (None, kind.name):
            continue
        if kind.library is not None:
            try:
                out.say(f"{kind.library} {version(kind.library)}")
            except PackageNotFoundError:
                out.say(f"{kind.name}: left out: pip install {kind.library}")
                continue
        command = [sys.executable, *kind.words]
        if kind.is_refused:
            out.say(f"{kind.name}: {_refusal(command, node)}")
            continue
        found = [
            Result(
                figure=f"{kind.name}: seen / stopwatch - 1",
                value=mean_difference(_seen_parts(command, node)),
                required=Required(low=-_SEEN_PART, high=_SEEN_PART),
            ),
            Result(
                figure=f"{kind.name}: with / without shim - 1",
                value=mean_difference(_cost_parts(command, node, arguments.blocks)),
                required=Required(high=_COST_PART),
            ),
        ]
        out.show(found)
        results += found
    return out.conclude(results)


def _seen_parts(command: Sequence[str], node: Hardware) -> list[float]:
    """Give what is seen of steps as a part of the stopwatch's time, less 1, by block."""
    run, laps = _run(command, node, (_SEEN_BLOCKS + _WARMUP_BLOCKS) * _BLOCK + 1)
    steps = [step.time_s for step in run.steps]
    if len(steps) != len(laps):
        raise BenchError(f"{len(steps)} steps seen and {len(laps)} laps of the stopwatch")
    # The first steps wait for the permit, which the stopwatch cannot know.
    begins = range(_WARMUP_BLOCKS * _BLOCK, len(steps), _BLOCK)
    return [fmean(steps[at : at + _BLOCK]) / fmean(laps[at : at + _BLOCK]) - 1 for at in begins]


def _cost_parts(command: Sequence[str], node: Hardware, pairs: int) -> list[float]:
    """Give what the shim costs, as a part of a step, in pairs of neighbouring blocks."""
    blocks = 2 * pairs + _WARMUP_BLOCKS
    os.environ[_BLOCK_VARIABLE] = str(_BLOCK)
    try:
        _, laps = _run(command, node, blocks * _BLOCK)
    finally:
        del os.environ[_BLOCK_VARIABLE]
    # The first lap of a block holds the switch; that of the first step is not there.
    means = [_undisturbed(laps[at * _BLOCK : (at + 1) * _BLOCK - 1]) for at in range(blocks)]
    first_ones, second_ones = means[_WARMUP_BLOCKS::2], means[_WARMUP_BLOCKS + 1 :: 2]
    # with, without; without, with
    differences = [
        (first - second) * (-1) ** at
        for at, (first, second) in enumerate(zip(first_ones, second_ones, strict=True))
    ]
    # By one step for all, not by that of each pair: the mean of ratios of noisy times is above 1.
    step_s = median(means[_WARMUP_BLOCKS:])
    return [difference / step_s for difference in differences]


def _undisturbed(laps: Sequence[float]) -> float:
    """Give the mean of laps without those in which another process had the core.

    A lap with a report of the shim stays: that is a part of a millisecond.
    """
    longest = _INTERRUPTED * median(laps)
    return fmean(lap for lap in laps if lap <= longest)


def _run(command: Sequence[str], node: Hardware, steps: int) -> tuple[FinishedRun, list[float]]:
    program = Program.parse([*command, str(steps)], cores=node.cpu.usable_cores)
    with RunningScript(program, _PLAN, node, folder=SCRIPTS) as script:
        try:
            run = script.finish(time_limit_s=_LIMIT_S)
        except ScriptFailedError as error:
            raise BenchError(f"{error.reason}\n{error.log_tail}") from error
        return run, _laps(script.output_tail)


def _laps(text: str) -> list[float]:
    lines = [line for line in text.splitlines() if line.startswith("laps ")]
    if len(lines) != 1:
        raise BenchError(f"{len(lines)} lines of the stopwatch: {text[-500:]}")
    return [float(word) for word in lines[0].split()[1:]]


def _refusal(command: Sequence[str], node: Hardware) -> str:
    program = Program.parse(command, cores=node.cpu.usable_cores)
    with RunningScript(program, _PLAN, node, folder=SCRIPTS) as script:
        try:
            script.make_steps(1, time_limit_s=_LIMIT_S)
        except ScriptRefusedError as error:
            return f"refused: {error.reason}"
    raise BenchError("steps that cannot be seen were counted")


if __name__ == "__main__":
    run_bench(main)

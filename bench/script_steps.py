"""Times of scripts' steps as seen from outside, against a stopwatch put in by hand.

Ten kinds of scripts, in `bench/step_scripts`. Each runs with the shim and without it in alternating
blocks, and prints the times of its stopwatch. The time that is seen of a step is held against the
stopwatch of the same run, and the stopwatches of both against each other: that is what the shim
costs. A kind whose library is missing is named and left out.
"""

from __future__ import annotations

import os
import subprocess
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
    alternate,
    make_parser,
    mean_difference,
    positive,
    run_bench,
)

from launch.errors import ScriptFailedError, ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from probes.hardware import Hardware
from probes.node import probe

SCRIPTS = Path(__file__).with_name("step_scripts")
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_LIMIT_S = 600.0
_WARMUP = 10
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenRun:
    stopwatch_s: float
    """Median step by the stopwatch."""

    ratio: float
    """Of all steps as seen to the same by the stopwatch."""


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--blocks", type=positive, default=10, help="of each kind (10)")
    parser.add_argument("--steps", type=positive, default=300, help="of a run (300)")
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
        command = [sys.executable, *kind.words, str(arguments.steps)]
        if kind.is_refused:
            out.say(f"{kind.name}: {_refusal(command, node)}")
            continue
        found = _measure(kind.name, command, node, arguments.blocks)
        out.show(found)
        results += found
    return out.conclude(results)


def _measure(name: str, command: list[str], node: Hardware, blocks: int) -> list[Result]:
    seen: list[float] = []
    costs: list[float] = []
    for run, plain_s in alternate(
        lambda: _run_seen(command, node), lambda: _run_plain(command), blocks=blocks
    ):
        seen.append(run.ratio - 1)
        costs.append(run.stopwatch_s / plain_s - 1)
    return [
        Result(
            figure=f"{name}: seen / stopwatch - 1",
            value=mean_difference(seen),
            required=Required(low=-_SEEN_PART, high=_SEEN_PART),
        ),
        Result(
            figure=f"{name}: with / without shim - 1",
            value=mean_difference(costs),
            required=Required(high=_COST_PART),
        ),
    ]


def _run_seen(command: Sequence[str], node: Hardware) -> _SeenRun:
    program = Program.parse(command, cores=node.cpu.usable_cores)
    plan = Plan(strategy="script", node_batch=1, options={"own_settings": True})
    with RunningScript(program, plan, node, folder=SCRIPTS) as script:
        try:
            run = script.finish(time_limit_s=_LIMIT_S)
        except ScriptFailedError as error:
            raise BenchError(f"{error.reason}\n{error.log_tail}") from error
        laps = _laps(script.output_tail)
    steps = [step.time_s for step in run.steps]
    if len(steps) != len(laps):
        raise BenchError(f"{len(steps)} steps seen and {len(laps)} laps of the stopwatch")
    # The first steps wait for the permit, which the stopwatch cannot know.
    ratio = fmean(steps[_WARMUP:]) / fmean(laps[_WARMUP:])
    return _SeenRun(stopwatch_s=median(laps[_WARMUP:]), ratio=ratio)


def _run_plain(command: Sequence[str]) -> float:
    done = subprocess.run(
        command,
        cwd=SCRIPTS,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode != 0:
        raise BenchError(done.stderr[-2000:])
    return median(_laps(done.stdout)[_WARMUP:])


def _laps(text: str) -> list[float]:
    lines = [line for line in text.splitlines() if line.startswith("laps ")]
    if len(lines) != 1:
        raise BenchError(f"{len(lines)} lines of the stopwatch: {text[-500:]}")
    return [float(word) for word in lines[0].split()[1:]]


def _refusal(command: Sequence[str], node: Hardware) -> str:
    program = Program.parse(command, cores=node.cpu.usable_cores)
    plan = Plan(strategy="script", node_batch=1, options={"own_settings": True})
    with RunningScript(program, plan, node, folder=SCRIPTS) as script:
        try:
            script.make_steps(1, time_limit_s=_LIMIT_S)
        except ScriptRefusedError as error:
            return f"refused: {error.reason}"
    raise BenchError("steps that cannot be seen were counted")


if __name__ == "__main__":
    run_bench(main)

"""Times of scripts' steps as seen from outside, against a stopwatch put in by hand.

Ten kinds of scripts, in `bench/step_scripts`, each with a stopwatch that it prints. What is seen of
its steps is held against the stopwatch of the same run, in blocks of 10 steps. The stopwatch also
times all that the shim does in a step: two starts of one script, and neighbouring blocks with and
without the shim, differ by more than that. A kind whose library is missing is named and left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import fmean

from _block import BenchError, Result, begin, make_parser, mean_interval, run_bench

from launch.errors import ScriptFailedError, ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from probes.hardware import Hardware
from probes.node import probe

SCRIPTS = Path(__file__).with_name("step_scripts")
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_LIMIT_S = 600.0
_BLOCK, _WARMUP_BLOCKS = 10, 4
_PLAN = Plan(strategy="script", node_batch=1, options={"own_settings": True})
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
    arguments, out = begin(make_parser(__doc__, blocks=(20, "of ten steps, for each script")))
    node = probe(quick=True)
    results: list[Result] = []
    for kind in KINDS:
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
        seen, cost = _measure(command, node, arguments.blocks)
        found = [
            Result(
                f"{kind.name}: seen / stopwatch - 1",
                mean_interval(seen),
                low=-_SEEN_PART,
                high=_SEEN_PART,
            ),
            Result(f"{kind.name}: time in the shim / step", mean_interval(cost), high=_COST_PART),
        ]
        out.show(found)
        results += found
    return out.conclude(results)


def _measure(
    command: Sequence[str], node: Hardware, blocks: int
) -> tuple[list[float], list[float]]:
    """Give by block what is seen of steps, and what the shim takes, as parts of the stopwatch's.

    From the first, 1 is taken away.
    """
    program = Program.parse(
        [*command, str((blocks + _WARMUP_BLOCKS) * _BLOCK + 1)], cores=node.cpu.usable_cores
    )
    with RunningScript(program, _PLAN, node, folder=SCRIPTS) as script:
        try:
            steps = [step.time_s for step in script.finish(time_limit_s=_LIMIT_S).steps]
        except ScriptFailedError as error:
            raise BenchError(f"{error.reason}\n{error.log_tail}") from error
        laps, shim = (_times_s(script.output_tail, name) for name in ("laps", "shim"))
    if len(steps) != len(laps) or not any(shim):
        raise BenchError(f"{len(steps)} steps seen, {len(laps)} laps, {sum(shim)} s in the shim")
    # The first steps wait for the permit, which the stopwatch cannot know.
    begins = range(_WARMUP_BLOCKS * _BLOCK, len(steps), _BLOCK)
    laps_s, steps_s, shim_s = (
        [fmean(times[at : at + _BLOCK]) for at in begins] for times in (laps, steps, shim)
    )
    seen = [step / lap - 1 for step, lap in zip(steps_s, laps_s, strict=True)]
    return seen, [spent / lap for spent, lap in zip(shim_s, laps_s, strict=True)]


def _times_s(text: str, name: str) -> list[float]:
    lines = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    if len(lines) != 1:
        raise BenchError(f"{len(lines)} lines with {name}: {text[-500:]}")
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

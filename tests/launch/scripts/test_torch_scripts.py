"""Scripts with the real torch: steps, batches and samples are counted exactly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launch.errors import ScriptRefusedError
from launch.plan import Plan
from launch.scripts.program import Program
from launch.scripts.running_script import RunningScript
from probes.hardware import Hardware

FOLDER = Path(__file__).parents[3] / "bench" / "step_scripts"
STEPS = 12
LIMIT_S = 120.0
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def script(node: Hardware, *words: str, steps: int = STEPS) -> RunningScript:
    program = Program.parse([sys.executable, *words, str(steps)], cores=2)
    return RunningScript(program, Plan(strategy="script", node_batch=32), node, folder=FOLDER)


KINDS = [
    (("plain.py",), "optimizer SGD, 1 step per 1 batch of 32", 32),
    (("accumulation.py",), "optimizer AdamW, 1 step per 2 batches of 32", 64),
    (("amp.py",), "optimizer SGD, 1 step per 1 batch of 32", 32),
    (
        ("gan.py",),
        "optimizers Adam and SGD: a step is 1 of Adam, 1 of SGD, 1 step per 1 batch of 32",
        32,
    ),
    (
        (*TORCHRUN, "ranks.py"),
        "optimizer SGD, 1 step per 1 batch of 32 on each of 2 ranks",
        64,
    ),
    (("spawn.py",), "optimizer SGD, 1 step per 1 batch of 32 on each of 2 ranks", 64),
    (("with_accelerate.py",), "optimizer SGD, 1 step per 1 batch of 32", 32),
    (("with_lightning.py",), "optimizer SGD, 1 step per 1 batch of 32", 32),
    (("with_transformers.py",), "optimizer AdamW, 1 step per 1 batch of 8", 8),
]


@pytest.mark.parametrize(
    ("words", "line", "samples"), KINDS, ids=[words[-1] for words, *_ in KINDS]
)
def test_every_step_of_a_whole_run_is_counted(words, line, samples, two_cores):
    with script(two_cores, *words) as running:
        run = running.finish(time_limit_s=LIMIT_S)
        assert str(running.recognised) == line
    assert len(run.steps) == STEPS - 1  # after the first
    looked_ahead = (
        samples if words[0].startswith("with_") else 0
    )  # such libraries read a batch before they need it
    assert (
        abs(sum(step.samples or 0 for step in run.steps) - samples * len(run.steps)) <= looked_ahead
    )
    assert run.start_up_s + sum(step.time_s for step in run.steps) <= run.time_s


def test_ranks_stand_still_at_the_same_step(two_cores):
    with script(two_cores, *TORCHRUN, "ranks.py", steps=10_000) as running:
        running.make_steps(1, time_limit_s=LIMIT_S)
        for count in (3, 1, 4):
            steps = running.make_steps(count, time_limit_s=LIMIT_S)
            assert [step.samples for step in steps] == [64] * count
        states = [Path(f"/proc/{pid}/stat").read_text() for pid in running.pids]
        stopped = [state for state in states if state.rpartition(")")[2].split()[0] == "T"]
        assert len(stopped) >= 2  # the ranks; torchrun itself goes on


def test_hidden_steps_are_refused_with_the_reason(two_cores):
    with (
        script(two_cores, "hidden.py") as running,
        pytest.raises(ScriptRefusedError, match="256 batches read and no step of an optimizer"),
    ):
        running.make_steps(1, time_limit_s=LIMIT_S)

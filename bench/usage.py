"""Cost of sampling a training once a second: of one sample alone, and of trainings in turns.

A rank samples what its node uses while it watches the workers. Held against each other are three
trainings of the same plan, which take turns: without samples, with the usual ones, and with so many
that their cost can be seen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from statistics import median

import psutil
from _block import Result, begin, make_parser, run_bench
from _trainings import endless_training, local_command, rank_path
from _turns import Turn, take_turns

from launch.job import NodeJob
from launch.plan import Plan
from probes.sampling.machine import read_counters
from probes.sampling.pace import Pace
from probes.sampling.process_tree import ProcessTree
from probes.timing import paired_ratio
from probes.usage import find_tree, resident_bytes

_BATCH = 8
_ROUNDS, _TURN_S = 20, 5.0
_SEEN_EVERY_S = 0.02
_GIB = 2**30
_HOLD = "import sys; held = bytearray(b'x') * int(sys.argv[1]); print(flush=True); input()"


def main() -> int:
    """Measure and show."""
    _, out = begin(make_parser(__doc__))
    return out.conclude([*out.show_each(_samples()), *_in_turns()])


def _samples() -> Iterator[Result]:
    """Measure the processor time of one sample, and of what would be more exact."""
    for children in (4, 16, 64):
        with _holding(children, num_bytes=1):
            known = ProcessTree(os.getpid(), search=Pace(1e9, 1.0))
            searching = ProcessTree(os.getpid(), search=Pace(0.0, 1e9))
            name = f"{children + 1} processes: processor time"
            cost_s = _cost_s(known.sample)
            yield Result(f"{name} of a sample", 1e3 * cost_s, "ms")
            cost_s = _cost_s(searching.sample)
            yield Result(f"{name}, with a search", 1e3 * cost_s, "ms")
    cost_s = _cost_s(read_counters)
    yield Result("counters of the machine", 1e3 * cost_s, "ms")
    with _holding(1, num_bytes=_GIB) as pids:
        cost_s = _cost_s(lambda: resident_bytes(pids), repeats=20)
        yield Result("proportional set size of 1 GiB", 1e3 * cost_s, "ms")


def _in_turns() -> list[Result]:
    os.environ["PYTHONPATH"] = rank_path()
    with ExitStack() as stack:
        turns = [stack.enter_context(_turn(every_s)) for every_s in (0.0, 1.0, _SEEN_EVERY_S)]
        found = take_turns(turns, rounds=_ROUNDS, seconds=_TURN_S)
        memory = _memory_ratio()
    without, usual, many = ([times[0] for times in each] for each in zip(*found, strict=True))
    return [
        Result("memory of a sample / proportional set size", memory),
        Result("step without samples", median(without), "s"),
        Result(
            "time of a step, one sample a second / none",
            paired_ratio(list(zip(usual, without, strict=True))),
            high=1.01,
        ),
        Result(
            f"time of a step, {1 / _SEEN_EVERY_S:.0f} samples a second / none",
            paired_ratio(list(zip(many, without, strict=True))),
        ),
    ]


def _memory_ratio() -> float:
    """Hold what a sample says of a training's memory against what the kernel finds page by page."""
    ratios = []
    for process in psutil.Process().children(recursive=True):
        words = process.cmdline()
        if "mpi4py" in words and words[:1] == [sys.executable]:
            exact = resident_bytes(find_tree(process.pid)) or 1
            ratios.append((ProcessTree(process.pid).sample().memory_bytes or 0) / exact)
    return median(ratios)


@contextmanager
def _turn(every_s: float) -> Iterator[Turn]:
    """Start a training without end that uses all cores, and looks at itself so often."""
    plan = Plan(strategy="processes", node_batch=_BATCH, processes=2, replicas=2)
    nodes = [NodeJob(host="localhost", plan=plan)]
    ranks = partial(local_command, "_sampled_rank", str(every_s))
    with endless_training(nodes, ranks) as training:
        turn = Turn([training], warm_up=2)
        try:
            yield turn
        finally:
            turn.close()


@contextmanager
def _holding(count: int, *, num_bytes: int) -> Iterator[list[int]]:
    """Start processes that hold memory and do nothing."""
    with ExitStack() as stack:
        started = []
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-c", _HOLD, str(num_bytes)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            stack.callback(process.communicate, b"\n")
            assert process.stdout is not None
            process.stdout.readline()
            started.append(process.pid)
        yield started


def _cost_s(work: Callable[[], object], *, repeats: int = 200) -> float:
    """Give the processor time of a work, the median of many."""
    costs = []
    for _ in range(repeats):
        began = time.thread_time()
        work()
        costs.append(time.thread_time() - began)
    return median(costs)


if __name__ == "__main__":
    run_bench(main)

"""Noise scale that trainings measure, against one found by brute force, and what measuring costs.

Brute force is the gradient of all samples, and those of thousands of single ones, at the weights
that a training has reached. They are held against what was measured there by comparing parts of
batches while the weights stood still, and against what the training itself had measured until then:
in one process, in unequal shares of one batch, and launched with two workers, threads or
micro-batches. The cost is by how much a measured step of a launch and the step after it are longer
than those around them: two starts of one training differ by up to 8 %, which is more than what is
looked for.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from _block import CASES, BenchError, Result, begin, make_parser, run_bench
from _prepared_case import load_prepared
from _timed_steps import reports_of
from _trainings import ALEXNET, endless_training, local_command
from safetensors.torch import load_file
from torch import Tensor

from launch.job import NodeJob
from launch.noise_scale.estimate import COST_LIMIT, NoiseScale
from launch.plan import Plan
from launch.reports import StepDone
from launch.training.averaging.noise_meter import NoiseMeter
from launch.use_cases import resolve
from launch.use_cases._base import UseCase
from launch.use_cases._settings import spell_name
from launch.workers.fork_server import ForkServer
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from planner.trials.comparison import ratio_interval
from probes.cpu import read_cpu
from probes.timing import Interval

STILL = f"{CASES}:Still"
SHARES = (32, 8, 24, 4)
_CASE, _STEPS, _SAMPLES = "mnist_cnn", (50, 200, 800), 3000
"""What is trained, the steps before each brute force, and its single samples."""

_FACTOR = 1.3
_MOST_COST = 0.005
_LIMIT_S = 600.0
_EVERY_STEP = 1.0
_SEED = 1
_NEIGHBOURS = 4
"""Steps on either side with which a measured one is compared."""
_SAME_START = 10**6
"""What another start would change is no part of what measuring costs."""
_STILL_STEPS = 1000
"""With the same weights, for a comparison at one point of a training: it moves on meanwhile."""
_LARGE_BATCH = 500
"""Samples whose mean gradient brute force takes at once."""


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__, seconds=(60, "of a launch for its cost"))
    parser.add_argument("--only", choices=("accuracy", "cost"), help="only a part")
    arguments, out = begin(parser)
    parts: list[Iterator[Result]] = []
    if arguments.only != "cost":
        parts += [_in_one_process(), _launched()]
    if arguments.only != "accuracy":
        parts.append(_costs(arguments.seconds))
    return out.conclude(out.show_each(chain.from_iterable(parts)))


def _in_one_process() -> Iterator[Result]:
    """Train with unequal shares of each batch, and stand still now and then for brute force."""
    case = load_prepared(_CASE)
    data = case.dataset(None, train=True)
    torch.manual_seed(_SEED)
    model = case.model()
    optimizer = case.optimizer(model.parameters())
    batches = _drawn(len(data), sum(SHARES))  # type: ignore[arg-type]
    running = NoiseMeter(model, is_first=True, cost_limit=_EVERY_STEP)
    shares = ", ".join(map(str, SHARES))
    done = 0
    for steps in _STEPS:
        for _ in range(steps - done):
            _measure_step(case, model, data, next(batches), running)
            optimizer.step()
        done = steps
        still = NoiseMeter(model, is_first=True, cost_limit=_EVERY_STEP)
        for _ in range(_STILL_STEPS):
            _measure_step(case, model, data, next(batches), still)
        truth = brute_force(case, model, data)
        yield from _compared(f"shares {shares}, weights of step {steps}", still.value(), truth)
        while_training = running.value()
        if while_training is not None and while_training.scale is not None:
            figure = f"shares {shares}, smoothed until step {steps} / brute force"
            yield Result(figure, while_training.scale / truth)


def _measure_step(
    case: UseCase, model: torch.nn.Module, data: Any, batch: Sequence[int], meter: NoiseMeter
) -> None:
    """Compute the gradient of a batch in unequal shares, before a meter's eyes."""
    samples = iter(batch)
    model.zero_grad()
    meter.start_step(len(batch), model.parameters())
    for share in SHARES:
        part = case.collate([data[next(samples)] for _ in range(share)])
        meter.begin_part(share / len(batch))
        (case.step(model, part) * (share / len(batch))).backward()  # type: ignore[no-untyped-call]
    meter.take(meter.offer())
    if meter.awaits_average:
        meter.add_average(p.grad for p in model.parameters() if p.grad is not None)


def _launched() -> Iterator[Result]:
    """Train as a launch does, one epoch, with each way to have parts on one node."""
    case = load_prepared(_CASE)
    data = case.dataset(None, train=True)
    cores = read_cpu().usable_cores
    batch = case.default_batch
    plans = {
        "processes": Plan(
            strategy="processes", processes=cores, replicas=cores, node_batch=2 * batch
        ),
        "threads": Plan(
            strategy="threads", threads_per_process=cores, replicas=cores, node_batch=2 * batch
        ),
        "micro-batches": Plan(
            strategy="threads", threads_per_process=cores, node_batch=2 * batch, micro_batches=4
        ),
    }
    with ForkServer() as server, tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as name:
        for kind, plan in plans.items():
            weights = Path(name, kind)
            noise, steps = _train(server, _CASE, plan, weights, COST_LIMIT)
            model = case.model()
            model.load_state_dict(load_file(weights))
            model.eval()
            truth = brute_force(case, model, data)
            yield from _compared(f"{kind}, launched, smoothed until step {steps}", noise, truth)
            if noise is not None:
                yield Result(f"{kind}: steps for each measurement", steps / noise.measurements)
            still = spell_name(STILL, (("case", _CASE), ("weights", str(weights))))
            noise, _ = _train(server, still, plan, weights, _EVERY_STEP)
            yield from _compared(f"{kind}, launched, weights of step {steps}", noise, truth)


def _train(
    server: ForkServer, use_case: str, plan: Plan, weights: Path, cost_limit: float
) -> tuple[NoiseScale | None, int]:
    """Train an epoch; give the last noise scale, and the steps."""
    task = Task(
        purpose=Purpose.TRAIN,
        workload=Workload(use_case=use_case, seed=_SEED),
        plan=plan,
        weights=str(weights),
        noise_cost_limit=cost_limit,
    )
    cores = read_cpu().choose_cores(plan.threads)
    noise, steps = None, 0
    for report in reports_of(server, make_worker_tasks(task, cores)):
        if isinstance(report, StepDone):
            noise, steps = report.noise or noise, steps + 1
    return noise, steps


def brute_force(case: UseCase, model: torch.nn.Module, data: Any) -> float:
    """Give the noise scale at the model's present weights.

    Args:
        case: What is trained.
        model: With these weights.
        data: All samples, whose mean gradient is computed; some are also looked at one by one.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]
    mean = [torch.zeros_like(p, dtype=torch.float64) for p in parameters]
    for start in range(0, len(data), _LARGE_BATCH):
        batch = range(start, min(start + _LARGE_BATCH, len(data)))
        for one, gradient in zip(mean, _gradients(case, model, data, batch), strict=True):
            one += gradient * (len(batch) / len(data))
    chosen = random.Random(_SEED).sample(range(len(data)), min(_SAMPLES, len(data)))
    squares = sum(_square_sum(_gradients(case, model, data, [index])) for index in chosen)
    variance = squares / len(chosen) - _square_sum(mean)
    square = _square_sum(mean) - variance / len(data)  # the mean of so many is off by this much
    if square <= 0:
        raise BenchError(f"{len(data)} samples do not show the mean gradient")
    return variance / square


def _gradients(
    case: UseCase, model: torch.nn.Module, data: Any, batch: Sequence[int]
) -> list[Tensor]:
    """Compute the gradients of the mean loss of some samples."""
    model.zero_grad()
    loss = case.step(model, case.collate([data[i] for i in batch]))
    loss.backward()  # type: ignore[no-untyped-call]
    return [
        torch.zeros_like(p, dtype=torch.float64) if p.grad is None else p.grad.double()
        for p in model.parameters()
        if p.requires_grad
    ]


def _square_sum(tensors: Iterable[Tensor]) -> float:
    return sum(float(one.square().sum()) for one in tensors)


def _compared(name: str, noise: NoiseScale | None, truth: float) -> Iterator[Result]:
    if noise is None or noise.scale is None or noise.low is None or noise.high is None:
        count = 0 if noise is None else noise.measurements
        yield Result(f"{name}: not clear after so many measurements", count)
        return
    yield Result(f"{name}: brute force", truth, "samples")
    scale = Interval(median=noise.scale, low=noise.low, high=noise.high, count=noise.measurements)
    yield Result(f"{name}: measured", scale, "samples")
    ratio = scale.scaled(1 / truth)
    yield Result(f"{name}: measured / brute force", ratio, low=1 / _FACTOR, high=_FACTOR)


def _drawn(samples: int, batch: int) -> Iterator[Sequence[int]]:
    """Give batches without end, each sample once in each epoch."""
    draw = random.Random(_SEED)
    while True:
        order = draw.sample(range(samples), samples)
        yield from (order[at : at + batch] for at in range(0, samples - batch + 1, batch))


def _costs(seconds: float) -> Iterator[Result]:
    """Say what measuring costs launches: of two processes, and of micro-batches."""
    batch = 2 * resolve(_CASE).load().default_batch
    cores = read_cpu().usable_cores
    pair = Plan(strategy="processes", processes=cores, replicas=cores, node_batch=batch)
    parts = Plan(strategy="threads", threads_per_process=cores, node_batch=batch, micro_batches=4)
    alexnet = replace(pair, node_batch=8 * cores)
    for name, use_case, plan in (
        (f"{_CASE}, processes", _CASE, pair),
        (f"{_CASE}, micro-batches", _CASE, parts),
        ("AlexNet, processes", ALEXNET, alexnet),
    ):
        yield from _cost(name, use_case, plan, seconds)


def _cost(name: str, use_case: str, plan: Plan, seconds: float) -> Iterator[Result]:
    """Hold steps that are measured, and those after them, against their neighbours."""
    times_s, told = _train_for(use_case, plan, seconds)
    measured = set(told) | {number - 1 for number in told}
    logs = []
    for number in told:
        near = range(number - _NEIGHBOURS - 1, number + _NEIGHBOURS + 1)
        usual = [times_s[n] for n in near if n not in measured and 0 < n < len(times_s)]
        if len(usual) >= _NEIGHBOURS:
            logs.append(math.log((times_s[number - 1] + times_s[number]) / (2 * fmean(usual))))
    longer = ratio_interval(logs, starts=_SAME_START)
    if longer is None:
        raise BenchError(f"{len(told)} measurements in {seconds:g} s: raise --seconds")
    between = len(times_s) / len(told)
    yield Result(f"{name}: a step", 1e3 * median(times_s), "ms")
    yield Result(f"{name}: a measured step and the next / two others", longer)
    yield Result(f"{name}: steps for each measurement", between)
    cost, low, high = (2 * (v - 1) / between for v in (longer.median, longer.low, longer.high))
    costs = Interval(median=cost, low=low, high=high, count=longer.count)
    yield Result(f"{name}: cost of measuring, of a step", costs, high=_MOST_COST)


def _train_for(use_case: str, plan: Plan, seconds: float) -> tuple[list[float], list[int]]:
    """Launch a training for a while; give the times of its steps, and which end a measurement."""
    times_s: list[float] = []
    told: list[int] = []
    nodes = [NodeJob(host="localhost", plan=plan)]
    ranks = partial(local_command, "launch.rank")
    with endless_training(nodes, ranks, use_case=use_case) as training:
        end = math.inf
        while time.monotonic() < end:
            if (step := training.next_step(_LIMIT_S)) is None:
                continue
            end = min(end, time.monotonic() + seconds)
            if step.noise is not None:
                told.append(len(times_s))
            times_s.append(step.time_s)
    return times_s, told


if __name__ == "__main__":
    run_bench(main)

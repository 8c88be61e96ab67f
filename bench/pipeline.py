"""Throughput of a two-stage pipeline on two cores, as a share of what its cut allows.

For AlexNet and VGG16, with ddlplan's own workers, on the same photos:

* measured / paper: the same runtime, cut by measured time and where Lerat, Mahmoudi and Mahmoudi
  (2022) cut (AlexNet after the 4th convolution, VGG16 after the 8th), in alternating blocks;
* pipeline / bound: its throughput over that of one process on one core with the same settings,
  times (sum of the stages' times / slowest) x m / (m + s - 1). No pipeline of ``s`` stages and
  ``m`` micro-batches exceeds that whose cores compute no faster than the one.
* pipeline / its own stages: (m + s - 1) times the slowest stage, as the workers measured it before
  their first step, over the time of a step. This one is the harder: the one process makes the
  weight gradients of linear layers once per micro-batch, a pipeline once a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from _block import BenchError, Output, Result, alternate, begin, make_parser, run_bench
from _timed_steps import reports_of

from launch.plan import Plan
from launch.reports import StepDone, StrategyPrepared
from launch.workers.fork_server import ForkServer
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from probes.cpu import read_cpu
from probes.timing import paired_ratio

_STAGES, _MICRO_BATCHES = 2, 8
_WARMUP_STEPS = 1  # the first step makes connections, and memory is new
_ENOUGH_OF_BOUND = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is cut, and what is expected of it."""

    use_case: str
    node_batch: int
    enough_ratio: float
    """Throughput of the measured cut over that of the paper's."""


_MODELS = {
    "alexnet": Model(use_case="simplebig", node_batch=128, enough_ratio=1.25),
    "vgg16": Model(use_case="complexsmall", node_batch=16, enough_ratio=1.18),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What one run of a plan gave."""

    plan: Plan
    step_times_s: tuple[float, ...]
    input_s: float
    """Time that the first worker waits for its samples, in a step."""
    facts: dict[str, Any]
    """What the pipeline found before its first step."""

    @property
    def step_s(self) -> float:
        """Median time of a step."""
        return median(self.step_times_s)

    @property
    def stage_times_s(self) -> list[float]:
        """Forward and backward pass of one micro-batch through each stage."""
        return [float(time_s) for time_s in self.facts["stage_times_s"]]

    @property
    def ideal_step_s(self) -> float:
        """Time of a step in which the slowest stage waits for the bubble and nothing else."""
        return (self.plan.micro_batches + len(self.stage_times_s) - 1) * max(self.stage_times_s)

    @property
    def bound(self) -> float:
        """Most that a pipeline cut like this can be faster than one process."""
        times_s, count = self.stage_times_s, self.plan.micro_batches
        return sum(times_s) / max(times_s) * count / (count + len(times_s) - 1)


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__, blocks=(2, "of four runs each"), steps=(4, "timed in each run"))
    parser.add_argument("--model", choices=list(_MODELS), help="this one only (both)")
    arguments, out = begin(parser)
    if len(read_cpu().core_ids) < _STAGES:
        raise BenchError(f"this bench needs {_STAGES} cores")
    results: list[Result] = []
    with ForkServer() as server:
        for name in [arguments.model] if arguments.model else list(_MODELS):
            workload = Workload(use_case=_MODELS[name].use_case)
            for _ in reports_of(server, [Task(purpose=Purpose.DESCRIBE, workload=workload)]):
                pass  # the photos are made ready, untimed
            run = partial(_run, server, workload, arguments.steps)
            results += _judge(name, run, arguments.blocks, out)
    return out.conclude(results)


def _run(server: ForkServer, workload: Workload, steps: int, plan: Plan) -> Leg:
    """Time some steps of a plan."""
    task = Task(purpose=Purpose.TIME, workload=workload, plan=plan)
    tasks = make_worker_tasks(task, read_cpu().core_ids[: plan.threads])
    timed: list[StepDone] = []
    facts: dict[str, Any] = {}
    for report in reports_of(server, tasks, steps=_WARMUP_STEPS + steps):
        if isinstance(report, StrategyPrepared):
            facts.update(report.facts)
        elif isinstance(report, StepDone):
            timed.append(report)
    del timed[:_WARMUP_STEPS]
    return Leg(
        plan=plan,
        step_times_s=tuple(step.time_s for step in timed),
        input_s=median(step.input_s for step in timed),
        facts=facts,
    )


def _judge(name: str, run: Callable[[Plan], Leg], blocks: int, out: Output) -> list[Result]:
    model = _MODELS[name]
    measured = Plan(
        strategy="pipeline",
        node_batch=model.node_batch,
        processes=_STAGES,
        micro_batches=_MICRO_BATCHES,
        memory_format="channels_last",
        input="cache",
        allocator="retain",
        options={"schedule": "1f1b", "cut": "measured"},
    )
    paper = replace(measured, options={**measured.options, "cut": "paper"})
    alone = replace(measured, strategy="sequential", processes=1, options={})
    out.say(
        f"{name}: {_STAGES} stages on one core each, batch {model.node_batch} in {_MICRO_BATCHES} "
        "micro-batches"
    )
    cuts = alternate(lambda: run(measured), lambda: run(paper), blocks=blocks)
    ways = alternate(lambda: run(measured), lambda: run(alone), blocks=blocks)
    pipelines, singles = [leg for leg, _ in (*cuts, *ways)], [leg for _, leg in ways]
    _show(pipelines, singles, out)

    def rate(legs: Iterable[Leg]) -> float:
        return model.node_batch / median(leg.step_s for leg in legs)

    ratio = paired_ratio([(single.step_s, leg.step_s) for leg, single in ways])
    of_bound = paired_ratio([(single.step_s / leg.bound, leg.step_s) for leg, single in ways])
    of_stages = paired_ratio([(leg.ideal_step_s, leg.step_s) for leg in pipelines])
    return [
        Result(f"{name}: pipeline, measured cut", rate(pipelines), "images/s"),
        Result(f"{name}: pipeline, the paper's cut", rate(leg for _, leg in cuts), "images/s"),
        Result(f"{name}: one process", rate(singles), "images/s"),
        Result(
            f"{name}: measured cut / the paper's",
            paired_ratio([(theirs.step_s, ours.step_s) for ours, theirs in cuts]),
            low=model.enough_ratio,
        ),
        Result(f"{name}: pipeline / one process", ratio),
        Result(f"{name}: bound of that", median(leg.bound for leg, _ in ways)),
        Result(f"{name}: share of the bound", of_bound, low=_ENOUGH_OF_BOUND),
        Result(f"{name}: share of what its stages allow", of_stages, low=_ENOUGH_OF_BOUND),
    ]


def _show(pipelines: Sequence[Leg], alone: Sequence[Leg], out: Output) -> None:
    """Say where the model was cut and where the time of a step goes."""
    for cut in sorted({tuple(leg.facts["cut"]) for leg in pipelines}):
        legs = [leg for leg in pipelines if tuple(leg.facts["cut"]) == cut]
        layers = legs[0].facts["layers"]
        before = ", ".join(f"layer {first} ({layers[first]})" for first in cut)
        times = zip(*(leg.stage_times_s for leg in legs), strict=True)
        stages = ", ".join(f"{1e3 * median(stage):.0f} ms" for stage in times)
        sent = ", ".join(f"{size / 1e6:.2f} MB" for size in legs[0].facts["sent_bytes"])
        out.say(f"cut before {before} in {len(legs)} runs: stages {stages}; {sent} sent each way")
    count = pipelines[0].plan.micro_batches
    slowest_s = median(max(leg.stage_times_s) for leg in pipelines)
    step_s = median(leg.step_s for leg in pipelines)
    single_s = median(leg.step_s for leg in alone)
    layers_s = count * median(sum(leg.stage_times_s) for leg in pipelines)
    rows = [
        ("slowest stage computes", count * slowest_s),
        ("bubble", (_STAGES - 1) * slowest_s),
        ("all else", step_s - (count + _STAGES - 1) * slowest_s),
        ("step", step_s),
        ("of that, waiting for input", median(leg.input_s for leg in pipelines)),
        ("one process: all layers", layers_s),
        ("one process: all else", single_s - layers_s),
        ("one process: step", single_s),
    ]
    out.table(
        ["PART", "TIME", "SHARE OF ITS STEP"],
        [
            [part, f"{time_s:.3f} s", f"{100 * time_s / whole_s:.1f} %"]
            for (part, time_s), whole_s in zip(rows, [step_s] * 5 + [single_s] * 3, strict=True)
        ],
    )
    out.say()


if __name__ == "__main__":
    run_bench(main)

"""Throughput of a two-stage pipeline on two cores, as a share of what its cut allows.

For AlexNet and VGG16, with ddlplan's own workers, on the same photos:

* measured / paper: the same runtime, cut by measured time and where Lerat, Mahmoudi and Mahmoudi
  (2022) cut (AlexNet after the 4th convolution, VGG16 after the 8th), in alternating blocks;
* pipeline / bound: its throughput over that of one process on one core with the same settings,
  times (sum of the stages' times / slowest) x m / (m + s - 1). No pipeline of ``s`` stages and
  ``m`` micro-batches exceeds that whose cores compute no faster than the one.
* pipeline / its own stages: (m + s - 1) times the slowest stage, as the workers measured it before
  their first step, all at the same time, over the time of a step. This one is the harder: the one
  process makes the weight gradients of linear layers once per micro-batch, a pipeline once a step.

A table shows where the time of a step goes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from _block import BenchError, Output, Result, alternate, make_parser, positive, run_bench

from launch.plan import INPUTS, MEMORY_FORMATS, PRECISIONS, Plan
from launch.reports import StepDone, StrategyPrepared
from launch.workers.fork_server import ForkServer
from launch.workers.group import ReportReceived, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from probes.cpu import read_cpu
from probes.timing import paired_ratio

_STAGES = 2
_WARMUP_STEPS = 1  # the first step makes connections, and memory is new
_LIMIT_S = 1800.0
_ENOUGH_OF_BOUND = 0.85


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is cut, and what is expected of it."""

    use_case: str
    node_batch: int
    micro_batches: int
    enough_ratio: float
    """Throughput of the measured cut over that of the paper's."""


_MODELS = {
    "alexnet": Model(use_case="simplebig", node_batch=128, micro_batches=8, enough_ratio=1.25),
    "vgg16": Model(use_case="complexsmall", node_batch=16, micro_batches=8, enough_ratio=1.18),
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


class Runner:
    """Runs plans of one use case.

    Args:
        server: Starts the workers.
        use_case: What they train.
        data: Folder of photos, if not the use case's own.
        steps: Timed in each run.
    """

    def __init__(self, server: ForkServer, use_case: str, data: str | None, steps: int) -> None:
        self._server = server
        self._use_case = use_case
        self._data = data
        self._steps = steps
        self._cores = read_cpu().core_ids

    def prepare(self) -> None:
        """Make the photos ready, untimed."""
        task = Task(
            purpose=Purpose.DESCRIBE, workload=Workload(use_case=self._use_case, data=self._data)
        )
        self._follow([task], lambda _: False)

    def run(self, plan: Plan) -> Leg:
        """Time some steps of a plan."""
        task = Task(
            purpose=Purpose.TIME,
            workload=Workload(use_case=self._use_case, data=self._data),
            plan=plan,
        )
        steps: list[StepDone] = []
        facts: dict[str, Any] = {}

        def listen(report: object) -> bool:
            if isinstance(report, StrategyPrepared):
                facts.update(report.facts)
            elif isinstance(report, StepDone):
                steps.append(report)
            return len(steps) == _WARMUP_STEPS + self._steps

        self._follow(make_worker_tasks(task, self._cores[: plan.threads]), listen)
        timed = steps[_WARMUP_STEPS:]
        return Leg(
            plan=plan,
            step_times_s=tuple(step.time_s for step in timed),
            input_s=median(step.input_s for step in timed),
            facts=facts,
        )

    def _follow(self, tasks: list[Task], listen: Any) -> None:
        """Start workers and hear them until ``listen`` has heard enough, or they are done."""
        deadline = time.monotonic() + _LIMIT_S
        with (
            tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as logs,
            WorkerGroup(self._server, tasks, Path(logs)) as group,
        ):
            while event := group.next_event(deadline - time.monotonic()):
                if failure := explain_failure(group, event):
                    raise BenchError(f"{failure.message}\n{failure.log_tail}")
                if isinstance(event, ReportReceived) and listen(event.report):
                    return
        if time.monotonic() >= deadline:
            raise BenchError(f"no end within {_LIMIT_S:.0f} s")


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--model", choices=list(_MODELS), help="this one only (both)")
    add("--blocks", type=positive, default=2, help="of four runs each (2)")
    add("--steps", type=positive, default=4, help="timed in each run (4)")
    add("--batch", type=positive, help="node batch (AlexNet 128, VGG16 16)")
    add("--micro-batches", type=positive, help="of a step (8)")
    add("--schedule", choices=["1f1b", "gpipe"], default="1f1b", help="(1f1b)")
    add("--memory-format", choices=MEMORY_FORMATS, default="channels_last")
    add("--precision", choices=PRECISIONS, default="fp32")
    add("--input", choices=INPUTS[:2], default="cache")
    add("--data", help="folder of photos (those of each use case, drawn once)")
    options = parser.parse_args()
    if len(read_cpu().core_ids) < _STAGES:
        raise BenchError(f"this bench needs {_STAGES} cores")
    out = Output("pipeline", as_json=options.json)
    out.introduce()
    results: list[Result] = []
    with ForkServer() as server:
        for name in [options.model] if options.model else list(_MODELS):
            model = _MODELS[name]
            runner = Runner(server, model.use_case, options.data, options.steps)
            runner.prepare()
            plan = Plan(
                strategy="pipeline",
                node_batch=options.batch or model.node_batch,
                processes=_STAGES,
                micro_batches=options.micro_batches or model.micro_batches,
                memory_format=options.memory_format,
                precision=options.precision,
                input=options.input,
                allocator="retain",
                options={"schedule": options.schedule, "cut": "measured"},
            )
            results += _judge(name, model, plan, runner, options.blocks, out)
    return out.conclude(results)


def _judge(
    name: str, model: Model, measured: Plan, runner: Runner, blocks: int, out: Output
) -> list[Result]:
    paper = replace(measured, options={**measured.options, "cut": "paper"})
    alone = Plan(
        strategy="sequential",
        **{
            key: getattr(measured, key)
            for key in ("node_batch", "micro_batches", "memory_format", "precision")
        },
        input=measured.input,
        allocator=measured.allocator,
    )
    out.say(
        f"{name}: {_STAGES} stages on one core each, batch {measured.node_batch} in "
        f"{measured.micro_batches} micro-batches, {measured.options['schedule']}, "
        f"{measured.memory_format}, {measured.precision}, input {measured.input}"
    )

    def run(plan: Plan) -> Leg:
        return runner.run(plan)

    cuts = list(alternate(lambda: run(measured), lambda: run(paper), blocks=blocks))
    ways = list(alternate(lambda: run(measured), lambda: run(alone), blocks=blocks))
    _show([leg for leg, _ in (*cuts, *ways)], [leg for _, leg in ways], out)
    batch = measured.node_batch
    return [
        Result(
            f"{name}: pipeline, measured cut",
            batch / median(leg.step_s for leg, _ in (*cuts, *ways)),
            "images/s",
        ),
        Result(
            f"{name}: pipeline, the paper's cut",
            batch / median(leg.step_s for _, leg in cuts),
            "images/s",
        ),
        Result(f"{name}: one process", batch / median(leg.step_s for _, leg in ways), "images/s"),
        Result(
            f"{name}: measured cut / the paper's",
            paired_ratio([(b.step_s, a.step_s) for a, b in cuts]),
            low=model.enough_ratio,
        ),
        Result(
            f"{name}: pipeline / one process", paired_ratio([(b.step_s, a.step_s) for a, b in ways])
        ),
        Result(f"{name}: bound of that", median(leg.bound for leg, _ in ways)),
        Result(
            f"{name}: share of the bound",
            paired_ratio([(b.step_s / a.bound, a.step_s) for a, b in ways]),
            low=_ENOUGH_OF_BOUND,
        ),
        Result(
            f"{name}: share of what its stages allow",
            paired_ratio([(leg.ideal_step_s, leg.step_s) for leg, _ in (*cuts, *ways)]),
            low=_ENOUGH_OF_BOUND,
        ),
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

"""How much faster does `gpu_data` train on a GPU than a plain loop with a loader on all cores?

Both train AlexNet and VGG16 in bf16 on one GPU, on the same photos with the same batch and
optimizer, channels_last. Ours is the fastest of a few plans: with and without a CUDA graph, and
through torch.compile if asked for. Each run is timed over steps of equal work after a warm-up; what
counts is images per second with their input, and as a share of the rate at which this GPU
multiplies large bf16 matrices.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from _block import (
    BenchError,
    Output,
    Required,
    Result,
    alternate,
    make_parser,
    positive,
    run_bench,
)
from _photos import link_photos

from launch.plan import Plan
from launch.reports import StepDone
from launch.workers.fork_server import ForkServer
from launch.workers.group import ReportReceived, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from probes import codec
from probes.cpu import read_cpu
from probes.cuda_devices import query_torch
from probes.speed import best_rate
from probes.timing import paired_ratio

_RIVAL = Path(__file__).with_name("rivals") / "plain_gpu.py"
_LIMIT_S = 1800.0
_MATRIX = 8192
_MATRIX_TIME_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What is trained."""

    use_case: str
    node_batch: int
    flop: float
    """Forward and backward pass of one image: 2 per multiplication with its addition."""


_MODELS = {
    "alexnet": Model(use_case="simplebig", node_batch=512, flop=4.12e9),
    "vgg16": Model(use_case="complexsmall", node_batch=128, flop=92.6e9),
}


class GpuBench:
    """Runs one model in both ways.

    Args:
        out: Is told of every run.
        server: Starts our workers.
        photos: Folder of `train/<class>/*` and `val/<class>/*`.
        options: Of the command line.
    """

    def __init__(
        self, out: Output, server: ForkServer, photos: Path, options: argparse.Namespace
    ) -> None:
        self._out = out
        self._server = server
        self._photos = photos
        self._options = options
        self._cores = read_cpu().core_ids

    def prepare(self, model: Model) -> None:
        """Make the photos ready, untimed."""
        task = Task(
            purpose=Purpose.DESCRIBE,
            workload=Workload(use_case=model.use_case, data=str(self._photos)),
        )
        self._follow([task], enough=None)

    def plans(self, model: Model) -> list[Plan]:
        """List the plans of which the fastest is ours."""
        device = self._options.device
        on_gpu = device != "cpu"
        plan = Plan(
            strategy="gpu_data",
            node_batch=self._options.batch or model.node_batch,
            threads_per_process=len(self._cores),
            devices=(device,),
            precision="bf16",
            memory_format="channels_last",
            input="device" if on_gpu else "cache",
            fused_optimizer=True,
            options={"cudnn_benchmark": True},
        )
        plans = [plan, replace(plan, cuda_graph=True)] if on_gpu else [plan]
        if self._options.compile:
            plans += [replace(each, compile=True) for each in plans]
        return plans

    def choose(self, model: Model) -> Plan:
        """Run each plan once and give the fastest."""
        rates = {codec.encode(p): (self.run_ours(model, p), p) for p in self.plans(model)}
        return max(rates.values(), key=lambda known: known[0])[1]

    def run_ours(self, model: Model, plan: Plan) -> float:
        """Time a plan; give images per second."""
        task = Task(
            purpose=Purpose.TIME,
            workload=Workload(use_case=model.use_case, data=str(self._photos)),
            plan=plan,
        )
        said = self._follow(
            make_worker_tasks(task, tuple(self._cores)),
            enough=self._options.warmup_steps + self._options.steps,
        )
        timed = said[self._options.warmup_steps :]
        time_s = math.fsum(step.time_s for step in timed)
        waited = math.fsum(step.input_s for step in timed) / time_s
        rate = sum(step.samples for step in timed) / time_s
        ways = [name for name in ("cuda_graph", "compile") if getattr(plan, name)]
        self._out.say(
            f"  ours{'':10} {rate:9.1f} images/s, {100 * waited:.1f} % waiting for input"
            f"{', '.join(['', *ways])}"
        )
        return rate

    def run_plain(self, name: str, plan: Plan) -> float:
        """Time the plain loop with a plan's batch; give images per second."""
        options = self._options
        command = [
            *(sys.executable, str(_RIVAL), "--data", str(self._photos / "train")),
            *("--model", name, "--device", options.device, "--channels-last"),
            *("--batch-size", str(plan.node_batch), "--steps", str(options.steps)),
            *("--warmup-steps", str(options.warmup_steps)),
            *("--loader-workers", str(len(self._cores))),
        ]
        time_s = float(_run(command)["time_s"])
        rate = options.steps * plan.node_batch / time_s
        self._out.say(f"  plain PyTorch {rate:10.1f} images/s")
        return rate

    def _follow(self, tasks: list[Task], *, enough: int | None) -> list[StepDone]:
        """Start workers and hear them until they are done, or have made ``enough`` steps."""
        steps: list[StepDone] = []
        deadline = time.monotonic() + _LIMIT_S
        with (
            tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as logs,
            WorkerGroup(self._server, tasks, Path(logs)) as group,
        ):
            while event := group.next_event(deadline - time.monotonic()):
                if failure := explain_failure(group, event):
                    raise BenchError(f"{failure.message}\n{failure.log_tail}")
                if isinstance(event, ReportReceived) and isinstance(event.report, StepDone):
                    steps.append(event.report)
                    if len(steps) == enough:
                        return steps
        if enough is not None:
            raise BenchError(f"{len(steps)} of {enough} steps within {_LIMIT_S:.0f} s")
        return steps


def main() -> int:
    """Measure and show."""
    options = _parse()
    if options.measure_rate:
        print(json.dumps({"flop_per_s": _measure_matrix_rate(options.device)}))
        return 0
    if options.device != "cpu" and (reason := query_torch().reason):
        raise BenchError(f"no GPU to measure on: {reason}")
    out = Output("gpu", as_json=options.json)
    out.introduce()
    rate = float(
        _run([sys.executable, __file__, "--measure-rate", "--device", options.device])["flop_per_s"]
    )
    out.say(f"{options.device} multiplies bf16 matrices at {rate / 1e12:.1f} TFLOP/s")
    results: list[Result] = []
    for name in [options.model] if options.model else list(_MODELS):
        results += _judge(name, rate, options, out)
    return out.conclude(results)


def _judge(name: str, flop_per_s: float, options: argparse.Namespace, out: Output) -> list[Result]:
    model = _MODELS[name]
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        photos = link_photos(
            model.use_case, options.data, Path(folder, "photos"), options.photos, out
        )
        # Pictures of photos that are gone afterwards do not belong into the user's cache.
        os.environ["DDLPLAN_CACHE"] = str(Path(folder, "cache"))
        with ForkServer() as server:
            bench = GpuBench(out, server, photos, options)
            out.say(
                f"{name}: batch {options.batch or model.node_batch}, bf16, {options.steps} steps"
            )
            bench.prepare(model)
            plan = bench.choose(model)
            pairs = list(
                alternate(
                    lambda: bench.run_ours(model, plan),
                    lambda: bench.run_plain(name, plan),
                    blocks=options.blocks,
                )
            )
    out.say()
    shares = [(model.flop * ours, flop_per_s) for ours, _ in pairs]
    is_required = Required(low=1.0) if options.device != "cpu" else None
    return [
        Result(
            figure=f"{name}: images/s of gpu_data / plain PyTorch, {options.device}",
            value=paired_ratio(pairs),
            required=is_required,
        ),
        Result(
            figure=f"{name}: gpu_data, share of the matrix rate",
            value=100 * paired_ratio(shares).median,
            unit="%",
        ),
    ]


def _measure_matrix_rate(device: str) -> float:
    """Give the FLOP/s at which a device multiplies large bf16 matrices, at its best."""
    import torch

    size = _MATRIX if device != "cpu" else _MATRIX // 8
    left, right = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))

    def multiply() -> None:
        torch.mm(left, right)
        if device != "cpu":
            torch.cuda.synchronize(device)

    return best_rate(multiply, 2.0 * size**3, _MATRIX_TIME_S)


def _run(command: Sequence[str]) -> dict[str, float]:
    """Run a program to its end; give the JSON of its last line."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"no end within {_LIMIT_S:.0f} s of {' '.join(command)}") from error
    if done.returncode != 0:
        tail = "\n".join(done.stderr.splitlines()[-20:])
        raise BenchError(f"exit code {done.returncode} of {' '.join(command)}\n{tail}")
    said: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return said


def _parse() -> argparse.Namespace:
    parser = make_parser(__doc__)
    add = parser.add_argument
    add("--model", choices=list(_MODELS), help="this one only (both)")
    add("--device", default="cuda:0", help="where (cuda:0); cpu only shows that the bench runs")
    add("--blocks", type=positive, default=3, help="of four runs each (3)")
    add("--steps", type=positive, default=60, help="timed in each run (60)")
    add("--warmup-steps", type=positive, default=20, help="before these (20)")
    add("--batch", type=positive, help="node batch (AlexNet 512, VGG16 128)")
    add("--photos", type=positive, default=640, help="training photos (640)")
    add("--data", type=Path, help="folder of photos, else those of the use cases")
    add("--compile", action="store_true", help="try plans through torch.compile too")
    add("--measure-rate", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    run_bench(main)

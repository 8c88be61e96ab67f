"""Time in which two workers average their gradients and update the weights.

Three things hold the same gradients of AlexNet (57.0 M parameters) against one another:

* ours: `launch.training.averaging.averaging`, two pinned processes with shared parameters and the
  fused SGD that a plan can ask for;
* DDP's way: two processes with torch's defaults, an all-reduce over gloo in buckets of 25 MiB, in
  which the gradients lie already, then the usual SGD step;
* the floor: 24 bytes per parameter (read two gradients, momentum and weight, write momentum and
  weight) over the copy bandwidth that all cores reach together, bytes read plus bytes written.

A step is timed from the moment when both workers have their gradients until the slower one may go
on. The backward pass is left out, and with it what could hide behind it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from _block import BenchError, Result, alternate, begin, make_parser, run_bench
from _local_workers import run_workers, task_of_worker

from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.local_group.group import LocalProcessGroup
from launch.plan import Plan
from launch.use_cases._base import UseCase
from probes.cpu import read_cpu
from probes.speed import measure_speeds
from probes.timing import Measurement, paired_ratio

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_WORKERS = 2
_WARMUP_STEPS, _STEPS = 3, 20
_BYTES_PER_PARAMETER = 24
_BUCKET_BYTES = 25 << 20
_OURS, _DDP = "ours", "ddp"
_LIMIT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What two workers found in one run."""

    step_times_s: tuple[float, ...]
    """Of the slower worker in each step."""
    parameters: int
    change: float
    """Norm of what all steps changed in the weights, which shows that both ways do the same."""

    @property
    def median_s(self) -> float:
        """Median time of a step."""
        return Measurement(samples_s=self.step_times_s).median_s


def main() -> int:
    """Measure and show."""
    if (task := task_of_worker()) is not None:
        _work(task)
        return 0
    arguments, out = begin(make_parser(__doc__, blocks=(3, "of four runs each")))
    cores = read_cpu().core_ids
    if len(cores) < _WORKERS:
        raise BenchError(f"usable_cores={len(cores)}: this bench needs {_WORKERS}")
    bandwidth = _copy_bandwidth(cores)
    pairs = alternate(
        lambda: _run(_DDP, cores), lambda: _run(_OURS, cores), blocks=arguments.blocks
    )
    bandwidth = max(bandwidth, _copy_bandwidth(cores))
    _check_equal([leg for pair in pairs for leg in pair])
    floor_s = _BYTES_PER_PARAMETER * pairs[0][0].parameters / bandwidth
    out.say(f"{pairs[0][0].parameters / 1e6:.1f} M parameters, two workers")
    out.say(f"copy bandwidth of all cores: {bandwidth / 1e9:.1f} GB/s")
    out.say()
    return out.conclude(_results(pairs, floor_s))


def _results(pairs: Sequence[tuple[Leg, Leg]], floor_s: float) -> list[Result]:
    ddp_ms, ours_ms = (
        Measurement(samples_s=tuple(1e3 * t for leg in legs for t in leg.step_times_s))
        for legs in zip(*pairs, strict=True)
    )
    return [
        Result("ours, average + SGD step", ours_ms.interval_s(), "ms"),
        Result("gloo all-reduce + SGD step", ddp_ms.interval_s(), "ms"),
        Result("floor", 1e3 * floor_s, "ms"),
        Result(
            "time of gloo / ours",
            paired_ratio([(ddp.median_s, ours.median_s) for ddp, ours in pairs]),
            low=4.0,
        ),
        Result(
            "time of ours / floor",
            paired_ratio([(ours.median_s, floor_s) for _, ours in pairs]),
            high=1.5,
        ),
    ]


def _copy_bandwidth(cores: Sequence[int]) -> float:
    report = measure_speeds(cores)
    found = report.speeds.copy_all_cores_bytes_per_s
    if found is None:
        raise BenchError(f"the copy bandwidth was not measured: {'; '.join(report.failures)}")
    return found


def _check_equal(legs: Sequence[Leg]) -> None:
    changes = [leg.change for leg in legs]
    if max(changes) - min(changes) > 1e-3 * min(changes):
        raise BenchError(f"both ways should change the weights alike: norms {changes}")


def _run(way: str, cores: Sequence[int]) -> Leg:
    """Run two workers to their end."""
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        rendezvous = str(Path(folder, "rendezvous"))
        task = {"way": way, "rendezvous": rendezvous}
        found = run_workers(
            __file__,
            [task | {"rank": rank, "core": cores[rank]} for rank in range(_WORKERS)],
            limit_s=_LIMIT_S,
            # One thread each, as torchrun and ddlplan do; sockets on this machine only.
            environment={"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )
    times_s = zip(*(worker["times_s"] for worker in found), strict=True)
    return Leg(
        step_times_s=tuple(max(both) for both in times_s),
        parameters=found[0]["parameters"],
        change=found[0]["change"],
    )


def _work(task: dict[str, Any]) -> None:
    """Be one worker: time steps, print what was found."""
    import torch

    rank, cores = task["rank"], [task["core"]]
    descriptors = SharedDescriptors.from_numbers(task["descriptors"])
    torch.set_num_threads(1)
    group = LocalProcessGroup(rank, _WORKERS, cores, descriptors)
    model = _make_model()
    gradients = _make_gradients(model, rank)
    if task["way"] == _OURS:
        os.sched_setaffinity(0, cores)
        refill, step = _prepare_ours(model, gradients, group)
    else:
        refill, step = _prepare_ddp(model, gradients, rank, task["rendezvous"])
    times_s = []
    for _ in range(_WARMUP_STEPS + _STEPS):
        refill()
        group.barrier()
        started = time.perf_counter()
        step()
        times_s.append(time.perf_counter() - started)
    before = _make_model().parameters()
    changes = [
        (p.detach() - q.detach()).norm() for p, q in zip(model.parameters(), before, strict=True)
    ]
    found = {
        "times_s": times_s[_WARMUP_STEPS:],
        "parameters": sum(p.numel() for p in model.parameters()),
        "change": float(torch.stack(changes).norm()),
    }
    print(json.dumps(found), flush=True)
    group.barrier()  # nobody leaves while another still reads its memory
    os._exit(0)  # gloo's threads need no orderly end


def _make_model() -> torch.nn.Module:
    import torch
    from torchvision.models import alexnet

    torch.manual_seed(0)
    model: torch.nn.Module = alexnet(weights=None, num_classes=3)
    return model


class _Case(UseCase):
    """What makes the optimizer."""

    def optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.SGD:
        import torch

        return torch.optim.SGD(parameters, lr=0.001, momentum=0.9)


def _make_gradients(model: torch.nn.Module, rank: int) -> list[Tensor]:
    """Make this worker's gradients, its share of the mean already in them."""
    import torch

    generator = torch.Generator().manual_seed(1 + rank)
    return [torch.randn(p.shape, generator=generator) / _WORKERS for p in model.parameters()]


def _prepare_ours(
    model: torch.nn.Module, gradients: list[Tensor], group: LocalProcessGroup
) -> tuple[Callable[[], None], Callable[[], object]]:
    import torch

    from launch.training.averaging.averaging import GradientAverager
    from launch.training.averaging.optimizer import make_optimizer

    plan = Plan(strategy="processes", node_batch=_WORKERS, fused_optimizer=True)
    optimizer = make_optimizer(plan, _Case(), model.parameters(), model)
    averager = GradientAverager(model, optimizer, group)
    parameters = list(model.parameters())

    def refill() -> None:
        """Hand the gradients over as a backward pass does, one parameter after the other."""
        averager.start_step()
        for parameter, gradient in zip(parameters, gradients, strict=True):
            torch.autograd.backward([parameter], [gradient])

    return refill, lambda: averager.step(0.0)


def _prepare_ddp(
    model: torch.nn.Module, gradients: list[Tensor], rank: int, rendezvous: str
) -> tuple[Callable[[], None], Callable[[], object]]:
    import torch
    from torch import distributed

    file = f"file://{rendezvous}"
    distributed.init_process_group("gloo", init_method=file, rank=rank, world_size=_WORKERS)
    optimizer = _Case().optimizer(model.parameters())
    # The last layers' gradients come first, as in a backward pass.
    parameters = list(model.parameters())[::-1]
    templates = gradients[::-1]
    buckets: list[Tensor] = []
    for indices in _bucket(parameters):
        bucket = torch.empty(sum(parameters[i].numel() for i in indices))
        views = torch.split(bucket, [parameters[i].numel() for i in indices])
        for index, view in zip(indices, views, strict=True):
            parameters[index].grad = view.view(parameters[index].shape)
        buckets.append(bucket)

    def refill() -> None:
        for parameter, template in zip(parameters, templates, strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(template)

    def step() -> None:
        # The gradients hold this worker's share of the mean, so their sum is the mean.
        work = [distributed.all_reduce(bucket, async_op=True) for bucket in buckets]
        for pending in work:
            assert pending is not None
            pending.wait()
        optimizer.step()

    return refill, step


def _bucket(parameters: Sequence[Tensor]) -> list[list[int]]:
    """Put neighbours together until they are as large as a bucket of DDP's."""
    buckets: list[list[int]] = [[]]
    filled_bytes = 0
    for index, parameter in enumerate(parameters):
        buckets[-1].append(index)
        filled_bytes += parameter.numel() * parameter.element_size()
        if filled_bytes >= _BUCKET_BYTES:
            buckets.append([])
            filled_bytes = 0
    return [bucket for bucket in buckets if bucket]


if __name__ == "__main__":
    run_bench(main)

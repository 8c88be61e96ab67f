"""Imagined machines: a step takes what a stated model says of its plan, and noise comes on top.

The model is made of what a step is known to consist of, not of what the search believes: calls of
operators that cost the same whatever the batch, Amdahl's law inside of an operator, a shared memory
bandwidth, a second socket, the interpreter's lock, one update of the parameters and one sum of the
gradients per step, loading that goes on beside computing or before it, the bubble of a pipeline.
Each world draws its figures at random. What settings do in the place of others, and every plan by
itself, is off by a few percent at random too, so no sum of effects is exact.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from dataclasses import dataclass, fields
from itertools import accumulate, combinations
from pathlib import Path
from statistics import median

import numpy as np

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.workload import Workload
from planner.tuning.tune_request import TuneRequest, limit_choices
from probes.hardware import CoreLimit, Cpu, Gpu, Hardware, Memory, Speeds

GIB = 2**30
_RECORDED = Path(__file__).parent / "grids" / "step-times.json"

_MEMORY_BYTES_PER_S = 1e10
_STEPS_OF_TRIAL = 5
"""Steps of a batch that must fit into a quarter of the budget for it to be offered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A kind of imagined machine."""

    name: str
    cores: int
    sockets: int = 1
    gpus: int = 0


MACHINES = (
    Machine(name="2 cores", cores=2),
    Machine(name="8 cores", cores=8),
    Machine(name="64 cores", cores=64, sockets=2),
    Machine(name="16 cores, 4 GPUs", cores=16, gpus=4),
)


class World:
    """One imagined machine with one imagined use case.

    Args:
        machine: Its kind.
        seed: Of its figures.
        budget_s: Of the searches: batches are those that ``tune`` offers within it.
    """

    def __init__(self, machine: Machine, seed: int, *, budget_s: float = 180.0) -> None:
        self.machine = machine
        self._seed = seed
        draw = np.random.default_rng((seed, machine.cores, machine.gpus))
        self.node = _node(machine)
        uniform = draw.uniform
        self._sample_s = math.exp(uniform(math.log(0.01), math.log(0.08)))  # on one core
        self.call_s = math.exp(uniform(math.log(0.002), math.log(0.012)))  # some 100 operators
        self._serial = uniform(0.005, 0.06)
        self._bandwidth = uniform(0.02, 0.35)
        self._span = uniform(1.05, 1.5)
        parameters = int(math.exp(uniform(math.log(2e6), math.log(1e8))))
        self._update_s = 4 * parameters * uniform(3, 8) / _MEMORY_BYTES_PER_S
        self._sum_s = 4 * parameters * 2 / _MEMORY_BYTES_PER_S
        self._cut = uniform(1.05, 1.4)
        self._cached = uniform(0.0, 0.04)
        self._decode_s = self._sample_s * uniform(0.02, 0.5)
        self._gpu_sample_s = self._sample_s / uniform(25, 120)
        self._gpu_call_s = uniform(0.004, 0.02)
        self._gpu_sum_s = 4 * parameters * uniform(0.2, 2) / 1e10
        self._factors = {
            "channels_last": uniform(0.75, 1.06),
            "retain": uniform(0.84, 1.0),
            "jemalloc": uniform(0.82, 1.04),
            "tcmalloc": uniform(0.82, 1.04),
            "fused": uniform(0.5, 1.0),
            "compile": uniform(0.85, 1.15),
            "graph": uniform(0.3, 0.8),
            "benchmark": uniform(0.88, 1.0),
        }
        self._start_on_gpu_s = uniform(3.0, 7.0)
        self.compile_s = uniform(25.0, 60.0)
        forks = np.random.default_rng((seed, machine.cores, 1)).uniform
        self._fork_s, self._each_fork_s = forks(0.3, 1.0), forks(0.02, 0.06)
        case = CaseFacts(
            default_batch=32,
            train_samples=6000,
            validation_samples=600,
            parameter_count=parameters,
            parameter_bytes=4 * parameters,
            max_stages=8,
            digest=f"sha256:{seed}",
            inputs=("files", "cache"),
            pixel_bytes=GIB,
            allocators=("default", "retain", "jemalloc", "tcmalloc"),
            has_fused_optimizer=True,
            can_compile=True,
        )
        self.case = limit_choices(
            case,
            TuneRequest(workload=Workload(use_case="imagined"), budget_s=budget_s),
            least_time_per_sample_s=_STEPS_OF_TRIAL * self._sample_s / machine.cores,
            cores=machine.cores,
        )

    def sample_s(self, plan: Plan) -> float:
        """Give the true time per sample."""
        return self.foreseeable_s(plan) * math.exp(0.008 * self._normal(repr(plan)))

    def foreseeable_s(self, plan: Plan) -> float:
        """Give it without what no other plan tells: the deviation of the plan's own."""
        step_s = self._gpu_step_s(plan) if "cpu" not in plan.devices else self._cpu_step_s(plan)
        return step_s * math.exp(self._oddity(plan)) / plan.node_batch

    def start_s(self, plan: Plan) -> float:
        """Give the time until a plan's processes can make their first step.

        On CPUs as trials showed it (2 cores of an AMD EPYC): one forked worker took 0.1 to 0.4 s
        beside its first step, or 0.4 to 0.6 s with AlexNet, two 0.2 to 0.8 s, and sixteen of a
        small model, which need the two cores in turn, 1.2 to 1.5 s.
        """
        if "cpu" not in plan.devices:
            return self._start_on_gpu_s
        return self._fork_s + self._each_fork_s * plan.processes

    def peak_bytes(self, plan: Plan) -> int:
        """Give the memory that a plan needs on CPUs."""
        state = 3 * self.case.parameter_bytes * plan.replicas
        return int(4e8 * plan.processes + state + 3e6 * plan.node_batch)

    def _cpu_step_s(self, plan: Plan) -> float:
        stages = max(1, plan.processes // plan.replicas)
        threads = plan.threads // (plan.replicas * stages)  # of one replica's stage
        share = math.ceil(plan.node_batch / plan.replicas)
        micro = math.ceil(share / plan.micro_batches)
        work_s = micro * self._sample_s * (self._serial + (1 - self._serial) / threads)
        work_s *= 1 + self._bandwidth * (plan.threads / self.machine.cores) ** 2
        work_s *= 1 + self._cached * max(0.0, math.log2(micro / 8))
        if threads > self.machine.cores // self.machine.sockets:
            work_s *= self._span
        work_s *= self._factor(plan, plan.memory_format) * self._factor(plan, plan.allocator)
        call_s = self.call_s * (self._factors["compile"] if plan.compile else 1.0)
        work_s *= self._factors["compile"] if plan.compile else 1.0
        if plan.strategy == "threads" and plan.replicas > 1:
            call_s *= plan.replicas  # one interpreter, and its lock
        compute_s = plan.micro_batches * (call_s + work_s)
        if stages > 1:
            bubble = (plan.micro_batches + stages - 1) / plan.micro_batches
            compute_s = bubble * self._cut * plan.micro_batches * (call_s + work_s / stages)
        update_s = self._update_s * (self._factors["fused"] if plan.fused_optimizer else 1.0)
        update_s /= math.pow(min(plan.threads, 8), 0.7)
        sum_s = self._sum_s * math.log2(2 * plan.replicas) if plan.replicas > 1 else 0.0
        loads = plan.node_batch / (plan.replicas if plan.processes > 1 else 1)
        return self._with_input(plan, compute_s, loads, threads) + update_s + sum_s

    def _gpu_step_s(self, plan: Plan) -> float:
        stages = max(1, plan.processes // plan.replicas)
        share = math.ceil(plan.node_batch / plan.replicas)
        micro = math.ceil(share / plan.micro_batches)
        work_s = micro * self._gpu_sample_s * self._factor(plan, plan.memory_format)
        work_s *= self._factors["compile"] if plan.compile else 1.0
        if plan.options.get("cudnn_benchmark"):
            work_s *= self._factors["benchmark"]
        call_s = self._gpu_call_s * (self._factors["graph"] if plan.cuda_graph else 1.0)
        each_s = call_s / stages + work_s / stages  # a GPU waits for calls where they are slower
        rounds = plan.micro_batches + (stages - 1)
        compute_s = rounds * each_s * (self._cut if stages > 1 else 1.0)
        sum_s = self._gpu_sum_s * (plan.replicas - 1) / plan.replicas
        update_s = 0.1 * self._update_s * (self._factors["fused"] if plan.fused_optimizer else 1.0)
        cores = max(1, self.machine.cores // plan.processes)
        if plan.strategy == "sequential":
            cores = 1
        return self._with_input(plan, compute_s, share, cores) + sum_s + update_s

    def _with_input(self, plan: Plan, compute_s: float, loads: float, cores: int) -> float:
        """Add the loading of so many samples by one worker: before computing, or beside it."""
        if plan.input == "device":
            return compute_s
        if plan.input == "cache":
            return compute_s + loads * self._decode_s * 0.03
        if plan.loader_workers == 0:
            return compute_s + loads * self._decode_s
        loading_s = loads * self._decode_s / min(plan.loader_workers, cores)
        on_cpu = "cpu" in plan.devices
        taken = min(1.0, loads * self._decode_s / (compute_s * cores)) if on_cpu else 0.0
        return max(loading_s, compute_s * (1 + taken)) + 0.001 * loads * self._decode_s

    def _factor(self, plan: Plan, value: str) -> float:
        """Give what a value makes of the time: a little else in each strategy."""
        known = self._factors.get(value)
        return 1.0 if known is None else known * math.exp(0.03 * self._normal(plan.strategy, value))

    def _oddity(self, plan: Plan) -> float:
        """Give by how much pairs of settings are off what their parts say."""
        named = {f.name: getattr(plan, f.name) for f in fields(plan)}
        values = [f"{name}={named[name]}" for name in _ODD]
        pairs = sum(self._normal(one, other) for one, other in combinations(values, 2))
        return 0.005 * pairs / math.sqrt(len(values))

    def _normal(self, *parts: str) -> float:
        """Give a random number that is always the same for these texts."""
        digest = hashlib.blake2b(
            repr((self._seed, self.machine.name, parts)).encode(), digest_size=16
        ).digest()
        first, second = (int.from_bytes(half, "big") + 1 for half in (digest[:8], digest[8:]))
        scale = 2**64 + 1
        return math.sqrt(-2 * math.log(first / scale)) * math.cos(2 * math.pi * second / scale)


_ODD = ("strategy", "allocator", "memory_format", "input", "fused_optimizer", "replicas")


class Noise:
    """Disturbance of step times: dependent steps, slow drift and rare outliers.

    Args:
        seed: Of all that is random.
        deviation: Standard deviation of the logarithm of a step's time.
        dependence: Autocorrelation of one step to the next.
        drift: Deviation of the slow drift.
    """

    def __init__(
        self,
        seed: int,
        *,
        deviation: float = 0.03,
        dependence: float = 0.0,
        drift: float = 0.05,
        outliers: float = 0.01,
    ) -> None:
        self._draw = np.random.default_rng((seed, 7))
        self._deviation, self._dependence, self._outliers = deviation, dependence, outliers
        self._drift = drift * math.sqrt(2)
        self._phase = self._draw.uniform(0, 2 * math.pi)
        self._period_s = self._draw.uniform(120, 600)
        self._last = self._draw.normal()

    def factor(self, start_s: float, step_s: float) -> float:
        """Give the time of a step that begins now / its undisturbed time."""
        kept = self._dependence
        self._last = kept * self._last + math.sqrt(1 - kept**2) * self._draw.normal()
        drift = self._drift * math.sin(self._phase + 2 * math.pi * start_s / self._period_s)
        factor = math.exp(self._deviation * self._last + drift)
        if self._draw.random() < self._outliers:
            factor *= 1 + self._draw.exponential(1.0)
        return factor


class RecordedNoise:
    """Disturbance as it was recorded: ten minutes of steps of one constant workload.

    Args:
        seed: Of the moment at which the record begins to be played.
    """

    def __init__(self, seed: int) -> None:
        steps = json.loads(_RECORDED.read_text(encoding="utf-8"))
        usual_s = median(step_s for _, step_s in steps)
        self._starts_s = [start_s for start_s, _ in steps]
        self._factors = [step_s / usual_s for _, step_s in steps]
        self._sums = [0.0, *accumulate(self._factors)]
        self._length_s = steps[-1][0] + steps[-1][1]
        self._offset_s = np.random.default_rng((seed, 11)).uniform(0, self._length_s)

    def factor(self, start_s: float, step_s: float) -> float:
        """Give the mean of what was recorded while a step runs."""
        begins_s = (start_s + self._offset_s) % self._length_s
        ends_s = min(begins_s + step_s, self._length_s)
        first = max(0, bisect_right(self._starts_s, begins_s) - 1)
        last = max(first + 1, bisect_right(self._starts_s, ends_s))
        return float(self._sums[last] - self._sums[first]) / (last - first)


def _node(machine: Machine) -> Hardware:
    cores = machine.cores
    cpu = Cpu(
        architecture="x86_64",
        logical_cores=cores,
        physical_cores=cores,
        sockets=machine.sockets,
        numa_nodes=machine.sockets,
        usable_cores=cores,
        core_ids=tuple(range(cores)),
        limits=(CoreLimit(source="imagined", cores=cores),),
    )
    gpus = tuple(
        Gpu(
            nvml_index=i,
            cuda_index=i,
            name="imagined",
            uuid=f"GPU-{i}",
            memory_bytes=24 * GIB,
            free_bytes=24 * GIB,
        )
        for i in range(machine.gpus)
    )
    memory = Memory(total_bytes=4 * cores * GIB, usable_bytes=4 * cores * GIB)
    speeds = Speeds(copy_all_cores_bytes_per_s=_MEMORY_BYTES_PER_S)
    return Hardware(node=machine.name, cpu=cpu, memory=memory, gpus=gpus, speeds=speeds)

"""What is a plan? One full setting of a strategy on one node, with its invariants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from launch.errors import InvalidPlanError

PRECISIONS = ("fp32", "bf16", "bf16_internal")
MEMORY_FORMATS = ("contiguous", "channels_last")
ALLOCATORS = ("default", "retain", "jemalloc", "tcmalloc")
INPUTS = ("files", "cache", "device")

_DEVICE = re.compile("cpu|cuda:[0-9]+")

Setting = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One full answer to "how should this use case run on this node?".

    ``node_batch == micro_batch_size * micro_batches * replicas`` up to the remainder that is
    left when it does not divide: sizes of shares then differ by one sample. A plan says nothing
    of a node; `check_fits` holds it against one.

    Raises:
        InvalidPlanError: A value breaks a rule that holds on every node.
    """

    strategy: str

    node_batch: int
    """Samples per optimizer step on this node."""

    processes: int = 1
    """Workers: local processes that train."""

    threads_per_process: int = 1
    """Intra-op threads of one worker, over all its replicas."""

    replicas: int = 1
    """Copies of the model on this node, each with an equal share of the node batch."""

    micro_batches: int = 1
    """Pieces that a replica's share of the node batch is cut into."""

    devices: tuple[str, ...] = ("cpu",)
    """``"cpu"`` once for all workers, or ``"cuda:<index>"`` in the order of the workers."""

    precision: str = "fp32"
    """``"bf16"`` computes by autocast; ``"bf16_internal"`` leaves every tensor in fp32 and lets
    oneDNN round inside of its operators, on a CPU."""

    memory_format: str = "contiguous"

    input: str = "files"
    """Where samples come from: the data set itself; ``"cache"``, its decoded pictures in a mapped
    file; ``"device"``, the same kept on the GPU."""

    loader_workers: int = 0
    """Data-loading processes of one worker; 0 reads in the training loop.

    They inherit their worker's cores, so they cannot slow other workers, and do not count
    as threads of the plan.
    """

    allocator: str = "default"
    """``"retain"`` keeps freed memory in the process, so each step need not fault it in again;
    the others are libraries that are loaded in place of the C library's allocator."""

    fused_optimizer: bool = False
    """One pass over the parameters instead of one for each operation of the optimizer."""

    compile: bool = False
    """Train through ``torch.compile``."""

    cuda_graph: bool = False
    """Record forward and backward pass once and replay them."""

    options: Mapping[str, Setting] = field(default_factory=dict)
    """Settings that only this strategy knows."""

    def __post_init__(self) -> None:
        for name in ("node_batch", "processes", "threads_per_process", "replicas", "micro_batches"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise InvalidPlanError(f"{name}={value!r}: use a whole number of at least 1")
        if self.loader_workers < 0:
            raise InvalidPlanError(f"loader_workers={self.loader_workers}: use 0 or more")
        if not self.devices:
            raise InvalidPlanError("devices=(): name at least one device, such as cpu")
        if unknown := [d for d in self.devices if not _DEVICE.fullmatch(str(d))]:
            raise InvalidPlanError(f"devices hold {unknown[0]!r}: use cpu, or cuda:0 and so on")
        for name, allowed in (
            ("precision", PRECISIONS),
            ("memory_format", MEMORY_FORMATS),
            ("allocator", ALLOCATORS),
            ("input", INPUTS),
        ):
            if getattr(self, name) not in allowed:
                value = getattr(self, name)
                raise InvalidPlanError(f"{name}={value!r}: choose one of {', '.join(allowed)}")
        if (self.input == "device" or self.cuda_graph) and "cpu" in self.devices:
            wish = "cuda_graph=True" if self.cuda_graph else "input=device"
            raise InvalidPlanError(f"{wish} and devices={','.join(self.devices)}: needs GPUs")
        if self.input != "files" and self.loader_workers:
            raise InvalidPlanError(
                f"input={self.input} and loader_workers={self.loader_workers}: use "
                "loader_workers=0, decoded pictures are read faster than they could be handed over"
            )
        if self.precision == "bf16_internal" and "cpu" not in self.devices:
            raise InvalidPlanError(
                f"precision=bf16_internal and devices={','.join(self.devices)}: only operators of "
                "a CPU round inside, use bf16"
            )
        if self.replicas * self.micro_batches > self.node_batch:
            raise InvalidPlanError(
                f"replicas={self.replicas} * micro_batches={self.micro_batches} and "
                f"node_batch={self.node_batch}: each micro-batch needs at least one sample"
            )

    @property
    def threads(self) -> int:
        """Intra-op threads over all workers."""
        return self.processes * self.threads_per_process

    def check_fits(self, usable_cores: int) -> None:
        """Hold the plan against a node.

        Raises:
            InvalidPlanError: The plan asks for more threads than the node has cores.
        """
        if self.threads > usable_cores:
            raise InvalidPlanError(
                f"processes={self.processes} * threads_per_process={self.threads_per_process} and "
                f"usable_cores={usable_cores}: use at most {usable_cores} threads in all"
            )

    def to_json(self) -> dict[str, Any]:
        """Give the plan as plain values that JSON can hold."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"devices": list(self.devices), "options": dict(self.options)}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Plan:
        """Read a plan back from `to_json`; unknown keys are left out.

        Raises:
            InvalidPlanError: A key is missing or a value breaks a rule.
        """
        known = {f.name for f in fields(cls)}
        chosen = {key: value for key, value in values.items() if key in known}
        if missing := {"strategy", "node_batch"} - chosen.keys():
            raise InvalidPlanError(f"plan without {', '.join(sorted(missing))}: add it")
        if "devices" in chosen:
            chosen["devices"] = tuple(chosen["devices"])
        return cls(**chosen)

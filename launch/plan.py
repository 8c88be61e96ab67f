"""Plan: one full setting of a strategy on one node, with its invariants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from operator import attrgetter

from launch.errors import InvalidPlanError
from launch.noise_scale.efficiency import LR_SCALINGS

PRECISIONS = ("fp32", "bf16", "bf16_internal")
MEMORY_FORMATS = ("contiguous", "channels_last")
ALLOCATORS = ("default", "retain", "jemalloc", "tcmalloc")
INPUTS = ("files", "cache", "device")

_MOST = 2**53
"""Beyond it, other readers of JSON round."""

_DEVICE = re.compile("cpu|cuda:[0-9]+")

Setting = str | int | float | bool


def _count(*, least: int = 1) -> int:
    """Make a field of a whole number, the least by default."""
    number: int = field(default=least, metadata={"least": least})
    return number


def _choice(values: tuple[str, ...]) -> str:
    """Make a field of one of some texts, the first by default."""
    text: str = field(default=values[0], metadata={"values": values})
    return text


class _HashedOnce:
    """Room for a hash: a search looks for its plans millions of times."""

    __slots__ = ("_hash",)
    _hash: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(_HashedOnce):
    """One full setting: how a use case runs on a node.

    ``node_batch == micro_batch_size * micro_batches * replicas`` up to the remainder that is
    left when it does not divide: sizes of shares then differ by one sample. A plan knows nothing
    of a node; `check_fits` compares it with one.

    A new setting is a field here, an entry of `launch.strategies._settings` and whatever applies
    it: what reads, shows and searches plans goes by the fields.

    Raises:
        InvalidPlanError: A value breaks a rule that holds on every node.
    """

    strategy: str

    processes: int = _count()
    """Workers: local processes that train."""

    threads_per_process: int = _count()
    """Intra-op threads of one worker, over all its replicas."""

    replicas: int = _count()
    """Copies of the model on this node, each with an equal share of the node batch."""

    node_batch: int = field(metadata={"least": 1})
    """Samples per optimizer step on this node."""

    micro_batches: int = _count()
    """Pieces that a replica's share of the node batch is cut into."""

    loader_workers: int = _count(least=0)
    """Data-loading processes of one worker; 0 reads in the training loop.

    They inherit their worker's cores, so they cannot slow other workers, and do not count
    as threads of the plan.
    """

    allocator: str = _choice(ALLOCATORS)
    """``"retain"`` keeps freed memory in the process, so each step need not fault it in again;
    the others are libraries that are loaded in place of the C library's allocator."""

    devices: tuple[str, ...] = ("cpu",)
    """``"cpu"`` once for all workers, or ``"cuda:<index>"`` in the order of the workers."""

    precision: str = _choice(PRECISIONS)
    """``"bf16"`` computes by autocast; ``"bf16_internal"`` leaves every tensor in fp32 and lets
    oneDNN round inside of its operators, on a CPU."""

    memory_format: str = _choice(MEMORY_FORMATS)

    input: str = _choice(INPUTS)
    """Where samples come from: the data set itself; ``"cache"``, its decoded pictures in a mapped
    file; ``"device"``, the same on the GPU."""

    lr_scaling: str = _choice(LR_SCALINGS)
    """How the learning rate goes with the batch of all nodes, from the use case's own on:
    ``"none"`` keeps it, ``"linear"`` scales it as the batch, ``"sqrt"`` by the square root."""

    fused_optimizer: bool = False
    """One pass over the parameters instead of one for each operation of the optimizer."""

    onednn_linear: bool = False
    """Linear layers multiply by oneDNN, on a CPU in fp32; elsewhere they are as they are."""

    compile: bool = False
    """Train through ``torch.compile``."""

    cuda_graph: bool = False
    """Record forward and backward pass once and replay them."""

    options: Mapping[str, Setting] = field(default_factory=dict)
    """Settings that only this strategy knows."""

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise InvalidPlanError(f"{name}={value!r}: use a whole number of at least {least}")
            if value > _MOST:
                raise InvalidPlanError(
                    f"{name}={value!s:.60}: use a whole number of at most {_MOST}"
                )
        for name, values in _VALUES.items():
            value = getattr(self, name)
            if value not in values:
                raise InvalidPlanError(f"{name}={value!r}: choose one of {', '.join(values)}")
        if not self.devices:
            raise InvalidPlanError("devices=(): name at least one device, such as cpu")
        if unknown := [d for d in self.devices if not _DEVICE.fullmatch(str(d))]:
            raise InvalidPlanError(f"devices hold {unknown[0]!r}: use cpu, or cuda:0 and so on")
        if (self.input == "device" or self.cuda_graph) and "cpu" in self.devices:
            setting = "cuda_graph=True" if self.cuda_graph else "input=device"
            raise InvalidPlanError(f"{setting} and devices={','.join(self.devices)}: needs GPUs")
        if self.input != "files" and self.loader_workers:
            raise InvalidPlanError(
                f"input={self.input} and loader_workers={self.loader_workers}: use "
                "loader_workers=0, decoded pictures are read faster than a process could send them"
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

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            own = hash((*_others_than_options(self), frozenset(self.options.items())))
            object.__setattr__(self, "_hash", own)
            return own

    @property
    def threads(self) -> int:
        """Intra-op threads over all workers."""
        return self.processes * self.threads_per_process

    @property
    def gpus(self) -> list[str]:
        """Numbers of its GPUs, each once."""
        found = [device.partition(":")[2] for device in self.devices if device != "cpu"]
        return list(dict.fromkeys(found))

    def device_of(self, worker: int) -> str:
        """Give the device of a worker, by its number on the node."""
        return self.devices[worker % len(self.devices)]

    @property
    def is_eager_on_cpu(self) -> bool:
        """Whether PyTorch runs the model operator by operator on the CPU.

        Then `launch.training.averaging.late_update` sees each use of a parameter.
        """
        return set(self.devices) == {"cpu"} and not self.compile

    def check_fits(self, usable_cores: int) -> None:
        """Check that a node has enough cores for the plan.

        Raises:
            InvalidPlanError: The plan asks for more threads than the node has cores.
        """
        if self.threads > usable_cores:
            raise InvalidPlanError(
                f"processes={self.processes} * threads_per_process={self.threads_per_process} and "
                f"usable_cores={usable_cores}: use at most {usable_cores} in all"
            )


# Looked up once: a search makes thousands of plans.
_LEAST: Mapping[str, int] = {
    each.name: each.metadata["least"] for each in fields(Plan) if "least" in each.metadata
}
_VALUES: Mapping[str, tuple[str, ...]] = {
    each.name: each.metadata["values"] for each in fields(Plan) if "values" in each.metadata
}
_others_than_options = attrgetter(*(each.name for each in fields(Plan) if each.name != "options"))

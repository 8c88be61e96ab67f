"""Hardware of a node: frozen values and their fingerprint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from dataclasses import dataclass

from probes.codec import Cores, Whole

GIB = 2**30

ORDER_UNKNOWN = "CUDA's order of the GPUs is not known: probe without --quick"
"""Said by a quick probe where GPUs are of different kinds, or cut up."""

ALL_HIDDEN = "CUDA_VISIBLE_DEVICES hides every GPU"
"""Said by a quick probe, also where GPUs are of different kinds."""

_BF16_INSTRUCTIONS = {"avx512_bf16", "amx_bf16", "arm_bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLimit:
    """One thing that limits how many cores may be used."""

    source: str
    """Source of the limit, such as ``affinity`` or ``cgroup v2 quota of /user.slice``."""

    cores: int

    quota_cores: float | None = None
    """Cores' worth of time that a quota grants; ``None`` where the limit is none of time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """The processors of a node, and how much of them may be used.

    ``usable_cores == len(core_ids) == min(limit.cores for limit in limits)``.
    """

    architecture: str
    """As ``uname -m`` gives it: ``x86_64``, ``aarch64``."""

    model: str | None = None

    logical_cores: int
    """Online logical cores (hardware threads) of the machine."""

    physical_cores: int | None = None
    sockets: int | None = None
    numa_nodes: int | None = None

    usable_cores: Cores
    """Logical cores that this process may use."""

    quota_cores: float | None = None
    """Cores' worth of time that quotas grant, which may be less than one; ``None`` without any."""

    core_ids: tuple[int, ...]
    """Logical cores that a plan may pin to.

    One of each physical core comes first, neighbours of a NUMA node together; second hardware
    threads come last. So the first k of them are the best k.
    """

    core_homes: tuple[tuple[int, ...], ...] = ()
    """NUMA node and physical core of each of ``core_ids``; empty where they are not known."""

    may_pin: bool = True
    """Whether ``core_ids`` are ours to choose.

    A quota grants time and not cores: were everyone with a quota to pin to the first cores of
    the machine, they would all sit on the same few.
    """

    limits: tuple[CoreLimit, ...]
    """Every limit found, in the order of the search."""

    l1d_bytes: int | None = None
    """First-level data cache of one core."""

    l2_bytes: int | None = None
    """Second-level cache of one core (or of the group of cores that shares it)."""

    l3_bytes: int | None = None
    """All third-level caches of the machine together."""

    instruction_sets: tuple[str, ...] = ()
    """Those for training, sorted: ``avx2``, ``avx512``, ``avx512_bf16``, ``amx_bf16``..."""

    @property
    def binding_limit(self) -> CoreLimit:
        """The limit that decides ``granted_cores``; of equal ones the first."""
        return min(self.limits, key=lambda limit: limit.quota_cores or limit.cores)

    @property
    def granted_cores(self) -> float:
        """Cores' worth of time that ``usable_cores`` may run: less than one under a small quota."""
        return min(self.usable_cores, self.quota_cores or self.usable_cores)

    @property
    def computes_bf16(self) -> bool:
        """Whether the processor multiplies bf16 by itself, rather than emulated in fp32."""
        return not _BF16_INSTRUCTIONS.isdisjoint(self.instruction_sets)

    def choose_cores(self, count: int) -> tuple[int, ...]:
        """Choose the best ``count`` logical cores to pin to, neighbours side by side.

        So equal parts of them, taken one after the other, share a physical core or a NUMA node
        inside a part rather than between two. Empty where nothing should be pinned.
        """
        if not self.may_pin:
            return ()
        homes = dict(zip(self.core_ids, self.core_homes, strict=False))
        return tuple(sorted(self.core_ids[:count], key=lambda core: homes.get(core, ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """One thing that limits how much memory may be used."""

    source: str
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The main memory of a node, and how much of it may be used."""

    total_bytes: Whole

    available_bytes: int | None = None
    """Memory that new processes could get now without swapping."""

    usable_bytes: Whole
    """``min(total_bytes, every limit)``: what the node's processes may use together."""

    limits: tuple[MemoryLimit, ...] = ()
    swap_bytes: int | None = None
    swap_free_bytes: int | None = None

    shm_bytes: int | None = None
    """Size of ``/dev/shm``, through which workers share tensors."""

    shm_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process of somebody else on a GPU."""

    pid: int
    used_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU. Fields that the driver does not give are ``None``."""

    nvml_index: int
    """NVML's number, which is nvidia-smi's: in order of the PCI bus."""

    cuda_index: int | None = None
    """CUDA's number, as in ``cuda:0``; ``None`` where CUDA does not show this GPU."""

    name: str | None = None
    uuid: str | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None

    compute_capability: tuple[int, ...] | None = None
    """Major and minor number."""

    pcie_generation: int | None = None
    """Highest generation that GPU and slot agree on; the current one drops when idle."""

    pcie_width: int | None = None
    """Lanes, likewise the highest."""

    nvlinks: int | None = None
    """Active NVLink links."""

    mig_enabled: bool | None = None

    compute_mode: str | None = None
    """``default``, ``exclusive_process`` or ``prohibited``."""

    other_processes: tuple[GpuProcess, ...] | None = None
    """Compute processes that the prober did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLink:
    """Link between two GPUs."""

    first_uuid: str
    second_uuid: str

    kind: str
    """``nvlink``, else what PCI has in common: ``board``, ``pcie_switch``, ``pcie_switches``,
    ``host_bridge``, ``numa_node``, ``system`` (from near to far)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInterface:
    """One network interface."""

    name: str

    kind: str
    """``physical``, ``bond``, ``bridge``, ``docker``, ``virtual`` or ``loopback``."""

    is_up: bool
    addresses: tuple[str, ...] = ()
    """IPv4 and IPv6 addresses, without the zone."""

    speed_bytes_per_s: float | None = None
    """Nominal, one way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speeds:
    """Measured limits. A step cannot be faster than these let it."""

    fp32_one_core_flop_per_s: float | None = None
    """Best of a square matrix product, one by oneDNN, and a 3 x 3 convolution. A multiplication
    and an addition are two operations."""

    fp32_all_cores_flop_per_s: float | None = None
    bf16_one_core_flop_per_s: float | None = None
    """``None`` where the processor has no instructions for bf16, too."""

    bf16_all_cores_flop_per_s: float | None = None

    onednn_product_gain: float | None = None
    """Time of a matrix product in fp32 as torch makes it / by oneDNN, on one core."""

    copy_one_core_bytes_per_s: float | None = None
    """Copy beyond the caches; bytes read and bytes written both count."""

    copy_all_cores_bytes_per_s: float | None = None

    jpeg_one_core_images_per_s: float | None = None
    """Decode a 400x300 photo, scale its short side to 256, crop 224x224."""

    host_to_device_bytes_per_s: float | None = None
    """From pinned memory to the first CUDA device."""

    gpu_fp32_flop_per_s: float | None = None
    """Square matrix product on the first CUDA device, rounded to TF32 where that has it: so does
    torch in convolutions, and in matrix products where it is allowed to."""

    gpu_bf16_flop_per_s: float | None = None
    """``None`` where the GPU has no instructions for bf16, too."""

    gpu_copy_bytes_per_s: float | None = None
    """Copy inside of its memory, beyond its cache; bytes read and bytes written both count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRate:
    """How fast whole files are read by so many readers at once."""

    readers: int
    files_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCopy:
    """A copy of some of the files on a local disk: how fast it is made and read."""

    folder: str
    file_system: str

    copy_files_per_s: float
    """By one program that copies one file after the other, down to the disk."""

    cold: tuple[ReadRate, ...]
    warm: tuple[ReadRate, ...] = ()

    free_bytes: int | None = None
    """That this user may still write there; ``None`` in measurements of old versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSpeed:
    """A folder of data, and how fast its files are read: by what was measured of some of them."""

    path: str
    """Absolute."""

    file_system: str
    """As the kernel calls it: ``ext4``, ``nfs4``, ``tmpfs``; empty where it is not known."""

    is_network: bool = False
    is_in_memory: bool = False

    num_files: int | None = None
    """``None`` where listing them took too long."""

    num_bytes: int | None = None

    num_unreadable: int = 0
    """Files that were to be measured and could not be opened."""

    open_s: float | None = None
    """Time to open a file and to read its first byte, not from the page cache."""

    sequential_bytes_per_s: float | None = None
    """Of one large file from its beginning, not from the page cache."""

    random_bytes_per_s: float | None = None
    """Of pieces of 64 KiB anywhere in it, likewise."""

    cold: tuple[ReadRate, ...] = ()
    """Whole files, not from the page cache, by rising numbers of readers."""

    warm: tuple[ReadRate, ...] = ()
    """The same files from the page cache."""

    local: LocalCopy | None = None
    """``None`` where the data are on a local disk, or nothing could be copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """Everything known about a node."""

    node: str
    """Host name."""

    cpu: Cpu
    memory: Memory

    gpus: tuple[Gpu, ...] = ()
    gpu_links: tuple[GpuLink, ...] = ()

    gpu_reason: str | None = None
    """Why there is no GPU to train on, or `ORDER_UNKNOWN`; ``None`` where there is one."""

    gpu_driver: str | None = None
    """Version of the driver."""

    networks: tuple[NetworkInterface, ...] = ()

    speeds: Speeds | None = None
    """``None`` where nothing was measured."""

    data: tuple[DataSpeed, ...] = ()
    """Folders of data that were measured on this node, each with its last measurement."""

    warnings: tuple[str, ...] = ()
    """What is not known, and what seems wrong, one line each."""

    @property
    def num_gpus(self) -> int:
        """GPUs to train on, also where a quick probe does not know CUDA's numbers of them."""
        return len(self.gpus) if self.gpu_reason in (None, ORDER_UNKNOWN) else 0

    def gpu_uuids(self, devices: Collection[str] | None = None) -> tuple[str, ...]:
        """Give the UUIDs of the GPUs that CUDA shows, or of those among the devices of a plan.

        A plan has CUDA's numbers, and NVML has others.
        """
        return tuple(
            gpu.uuid
            for gpu in self.gpus
            if gpu.uuid and gpu.cuda_index is not None
            if devices is None or f"cuda:{gpu.cuda_index}" in devices
        )

    def fingerprint(self) -> str:
        """Give ``sha256:...``, the same as long as the node trains equally fast when idle.

        Counts: processors, cores that may be used, total memory, kinds of GPUs in their order. Does
        not count: name and addresses, load, free memory, other people's processes, measured speeds,
        driver, which GPUs of a kind these are, and which CUDA happens to show. Sizes are rounded to
        GiB, since kernels and drivers reserve a little more or less from version to version.
        """
        cpu = self.cpu
        facts = {
            "architecture": cpu.architecture,
            "model": cpu.model,
            "cores": [cpu.logical_cores, cpu.physical_cores, cpu.sockets, cpu.numa_nodes],
            "usable_cores": cpu.usable_cores,
            "instruction_sets": sorted(cpu.instruction_sets),
            "memory_gib": round(self.memory.total_bytes / GIB),
            "gpus": [_gpu_facts(gpu) for gpu in sorted(self.gpus, key=lambda gpu: gpu.nvml_index)],
        }
        text = json.dumps(facts, sort_keys=True)
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


def _gpu_facts(gpu: Gpu) -> str:
    size_gib = None if gpu.memory_bytes is None else round(gpu.memory_bytes / GIB)
    return json.dumps([gpu.name, size_gib, gpu.compute_capability, gpu.mig_enabled])

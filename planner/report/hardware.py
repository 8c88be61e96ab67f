"""Lines that show the hardware that a probe found."""

from __future__ import annotations

from collections.abc import Iterator

from planner.input_cost.lines import data_facts
from planner.quantities import format_count
from probes.hardware import Cpu, Gpu, Hardware, Speeds

_GIGA = 1e9
_TERA = 1e12


def hardware_lines(node: Hardware) -> list[str]:
    """Give a probe as aligned lines of at most 80 columns, except for long names."""
    return [f"{name:<13}{value}" for name, value in hardware_facts(node)]


def describe_hardware(node: Hardware) -> str:
    """Name a machine's processor, cores, memory and GPUs."""
    gpus = ", ".join(gpu.name or "a GPU" for gpu in node.gpus) or "no GPU"
    granted = node.cpu.granted_cores
    cores = "1 usable core" if granted == 1 else f"{granted:g} usable cores"
    return (
        f"{node.cpu.model or node.cpu.architecture}, {cores}, "
        f"{node.memory.total_bytes / 2**30:.0f} GiB, {gpus}"
    )


def hardware_facts(node: Hardware) -> list[tuple[str, str]]:
    """Give a probe as names and texts."""
    rows = [("host", node.node), *_cpu_rows(node), *_memory_rows(node), *_gpu_rows(node)]
    rows += _network_rows(node)
    if node.speeds is not None:
        rows += _speed_rows(node.speeds, node.cpu)
    for speed in node.data:
        rows += data_facts(speed)
    rows.append(("fingerprint", node.fingerprint()))
    return rows


def _cpu_rows(node: Hardware) -> Iterator[tuple[str, str]]:
    cpu = node.cpu
    shape = [f"{cpu.logical_cores} logical", f"{_shown(cpu.physical_cores)} physical"]
    shape += [_counted(cpu.sockets, "socket"), _counted(cpu.numa_nodes, "NUMA node")]
    yield "processor", cpu.model or cpu.architecture
    yield "cores", ", ".join(shape)
    yield "usable cores", f"{cpu.granted_cores:g} (limit: {cpu.binding_limit.source})"
    caches = (("L1d", cpu.l1d_bytes), ("L2", cpu.l2_bytes), ("L3", cpu.l3_bytes))
    yield "caches", ", ".join(f"{name} {_size(size)}" for name, size in caches)
    yield "instructions", " ".join(cpu.instruction_sets) or "none of note"


def _memory_rows(node: Hardware) -> Iterator[tuple[str, str]]:
    memory = node.memory
    usable = ""
    if memory.usable_bytes < memory.total_bytes:
        usable = f", usable {_size(memory.usable_bytes)}"
    yield "memory", f"{_size(memory.total_bytes)}{usable}, /dev/shm {_size(memory.shm_bytes)}"


def _gpu_rows(node: Hardware) -> Iterator[tuple[str, str]]:
    if not node.gpus:
        yield "GPUs", "none" if node.gpu_reason is None else f"none: {node.gpu_reason}"
    for gpu in node.gpus:
        yield f"GPU {gpu.nvml_index}", ", ".join(_gpu_facts(gpu))
    if node.gpus and node.gpu_reason:
        yield "GPUs", node.gpu_reason if node.num_gpus else f"not used: {node.gpu_reason}"
    for link in node.gpu_links:
        numbers = {gpu.uuid: gpu.nvml_index for gpu in node.gpus}
        first, second = numbers.get(link.first_uuid), numbers.get(link.second_uuid)
        yield "GPU link", f"{first} - {second}: {link.kind}"


def _gpu_facts(gpu: Gpu) -> Iterator[str]:
    yield gpu.name or "unknown"
    yield _size(gpu.memory_bytes)
    if gpu.compute_capability:
        yield "compute " + ".".join(map(str, gpu.compute_capability))
    if gpu.pcie_generation:
        yield f"PCIe {gpu.pcie_generation} x{_shown(gpu.pcie_width)}"
    yield f"cuda:{gpu.cuda_index}" if gpu.cuda_index is not None else "not shown by CUDA"
    if gpu.mig_enabled:
        yield "MIG"
    if gpu.compute_mode not in (None, "default"):
        yield str(gpu.compute_mode)
    if gpu.other_processes:
        yield f"{format_count(len(gpu.other_processes), 'process')} of others"


def _network_rows(node: Hardware) -> Iterator[tuple[str, str]]:
    for network in node.networks:
        if network.is_up and network.kind != "loopback":
            speed = network.speed_bytes_per_s
            rate = f", {8 * speed / _GIGA:g} Gb/s" if speed else ""
            yield "network", f"{network.name} ({network.kind}{rate})"


def _speed_rows(speeds: Speeds, cpu: Cpu) -> Iterator[tuple[str, str]]:
    pairs = (
        ("fp32", speeds.fp32_one_core_flop_per_s, speeds.fp32_all_cores_flop_per_s, "GFLOP/s"),
        ("bf16", speeds.bf16_one_core_flop_per_s, speeds.bf16_all_cores_flop_per_s, "GFLOP/s"),
        ("copy", speeds.copy_one_core_bytes_per_s, speeds.copy_all_cores_bytes_per_s, "GB/s"),
    )
    for name, one, every, unit in pairs:
        if one is not None and every is not None:
            yield name, f"{one / _GIGA:.0f} {unit} on 1 core, {every / _GIGA:.0f} on all"
        elif name == "bf16" and not cpu.computes_bf16:
            yield name, "not measured: this processor has no instructions for it"
    if speeds.jpeg_one_core_images_per_s is not None:
        yield "JPEG", f"{speeds.jpeg_one_core_images_per_s:.0f} photos/s decoded on 1 core"
    of_gpu = (
        ("host to GPU", speeds.host_to_device_bytes_per_s, _GIGA, "GB/s"),
        ("GPU fp32", speeds.gpu_fp32_flop_per_s, _TERA, "TFLOP/s"),
        ("GPU bf16", speeds.gpu_bf16_flop_per_s, _TERA, "TFLOP/s"),
        ("GPU copy", speeds.gpu_copy_bytes_per_s, _GIGA, "GB/s"),
    )
    for name, rate, size, unit in of_gpu:
        if rate is not None:
            yield name, f"{rate / size:.1f} {unit}"


def _size(num_bytes: int | None) -> str:
    if num_bytes is None:
        return "?"
    value, unit = float(num_bytes), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.1f} {unit}".replace(".0 ", " ")


def _counted(value: int | None, thing: str) -> str:
    return f"{_shown(value)} {thing}" + ("" if value == 1 else "s")


def _shown(value: int | None) -> str:
    return "?" if value is None else str(value)

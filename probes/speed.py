"""Speed of the cores, of memory, of a GPU and of the way to it: limits, measured in seconds.

``python -m probes.speed --budget-s 6 --cores 0,1`` measures and prints what it has found after
each quantity; `measure_speeds` starts that and reads it. A limit is what the machine can do at its
best, so the best of many short runs counts, not the median: all else is disturbance.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING

from probes import codec
from probes.child_process import module_command, run_child
from probes.cpu import read_cpu
from probes.errors import InvalidDocumentError, SpeedProbeError, first_line
from probes.hardware import Speeds

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image as Picture

_GRACE_S = 1.0
"""Time that a child may take over its budget: it reads its clock between two runs only."""

_MATRIX = 1024
_MAX_MATRIX = 8192
_MIN_RUN_S = 0.005
"""Below this, starting all threads takes a share of the time that training would not see."""

_LEAST_TURNS = 3

_CHANNELS, _SIDE = 128, 28
"""Of the pictures that are convolved."""

_COPY_BYTES = 64 * 2**20
"""Per buffer, two of them: beyond the caches of most machines, and quickly filled."""

_GPU = "cuda:0"
_LEAST_GPU_S = 0.2
"""A GPU that was idle is slow at first."""

_GPU_COPY_BYTES = 2**28
"""Per buffer, beyond the caches of GPUs."""

_GPU_COPIES = 4
"""One after the other, so that waiting for their end takes a small share."""

_BF16_CAPABILITY = (8, 0)
"""Ampere, the first GPUs that multiply bf16: on those before it is emulated."""

_PHOTO = (400, 300)
_SHORT_SIDE = 256
_CROP = 224
_JPEG_QUALITY = 85


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedReport:
    """Measured speeds, and failures."""

    speeds: Speeds
    failures: tuple[str, ...] = ()
    """One line for each quantity that failed."""


Run = Callable[[], object]
Way = Callable[[int, "torch.dtype"], tuple[Run, float]]
"""Makes a run of a size, with its number of operations."""

Measure = Callable[[float], float]
"""From a time limit in seconds to operations, bytes or images per second, or to a ratio."""

Clock = Callable[[], float]


def measure_speeds(
    core_ids: Sequence[int], *, budget_s: float = 7.0, command: Sequence[str] | None = None
) -> SpeedReport:
    """Measure limits in a process of its own.

    Args:
        core_ids: Cores to use, the best first.
        budget_s: Time for everything, the import of torch (2-5 s) included.
        command: The program to run; `probes.speed` with these cores when left out.

    Raises:
        SpeedProbeError: The process gave no result at all.
    """
    cores = ",".join(map(str, core_ids))
    arguments = ("--budget-s", str(budget_s), "--cores", cores)
    result = run_child(
        module_command("probes.speed", *arguments) if command is None else command,
        limit_s=budget_s + _GRACE_S,
    )
    if result.document is None:
        why = result.failure or "it printed nothing"
        raise SpeedProbeError(f"limits were not measured ({why}): probe again")
    try:
        report = codec.convert(result.document, SpeedReport, source="its answer")
    except InvalidDocumentError as error:
        raise SpeedProbeError(f"limits were not measured ({error}): probe again") from error
    if result.failure is None:
        return report
    partly = f"limits were measured in part only: {result.failure}"
    return replace(report, failures=(*report.failures, partly))


def best_rate(run: Run, amount: float, limit_s: float, clock: Clock = time.perf_counter) -> float:
    """Give ``amount`` over the shortest time of ``run``.

    Args:
        run: What to time; it runs once before, to warm up, and then at least once.
        amount: What one run achieves.
        limit_s: No run starts after so long, the first two excepted.
        clock: Gives the time in seconds.
    """
    start_s = clock()
    run()
    best_s = float("inf")
    while True:
        before_s = clock()
        run()
        after_s = clock()
        best_s = min(best_s, after_s - before_s)
        if after_s - start_s >= limit_s:
            return amount / best_s


def _compute_rate(dtype: torch.dtype, threads: int, limit_s: float) -> float:
    """Give the rate of the best of what training may use.

    On AMD processors MKL's matrix product in fp32 may be half as fast as oneDNN's, and training
    then faster than the one limit that was measured.
    """
    import torch

    torch.set_num_threads(threads)
    ways = [_multiply, _convolve]
    if _has_onednn_product():
        ways.append(_multiply_by_onednn)
    return max(_best_rate_of(way, dtype, limit_s / len(ways)) for way in ways)


def _best_rate_of(way: Way, dtype: torch.dtype, limit_s: float) -> float:
    """Give the rate of one way, at a size that keeps all threads busy."""
    start_s = time.perf_counter()
    size = _MATRIX // 4  # a slow machine takes long for large ones
    while True:
        run, operations = way(size, dtype)
        rate = best_rate(run, operations, 0)
        spent_s = time.perf_counter() - start_s
        is_large = size >= _MATRIX and operations / rate >= _MIN_RUN_S
        if is_large or size >= _MAX_MATRIX or spent_s > limit_s / 4:
            return max(rate, best_rate(run, operations, limit_s - spent_s))
        size *= 2


def _onednn_gain(limit_s: float) -> float:
    """Give how much faster oneDNN's product is, by turns: both meet the same disturbances."""
    import torch

    torch.set_num_threads(1)
    (plain, _), (by_onednn, _) = (
        way(_MATRIX, torch.float32) for way in (_multiply, _multiply_by_onednn)
    )
    times_s: tuple[list[float], list[float]] = ([], [])
    start_s = time.perf_counter()
    for run in cycle((plain, by_onednn, by_onednn, plain)):
        before_s = time.perf_counter()
        run()
        after_s = time.perf_counter()
        times_s[run is by_onednn].append(after_s - before_s)
        if after_s - start_s >= limit_s and min(map(len, times_s)) >= _LEAST_TURNS:
            return min(times_s[0]) / min(times_s[1])
    raise AssertionError("a cycle does not end")


def _has_onednn_product() -> bool:
    import torch

    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _multiply(size: int, dtype: torch.dtype) -> tuple[Run, float]:
    """Multiply matrices by what torch chooses: MKL on x86 processors, in fp32."""
    import torch

    left, right = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    product = torch.empty(size, size, dtype=dtype)
    return lambda: torch.mm(left, right, out=product), 2.0 * size**3


def _multiply_by_onednn(size: int, dtype: torch.dtype) -> tuple[Run, float]:
    """Multiply matrices by oneDNN, through the operator of torch's own compiler.

    As a convolution of one pixel it would be a third as fast: both matrices are put into another
    order first.
    """
    import torch

    left, right = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
    multiply = torch.ops.mkldnn._linear_pointwise
    return lambda: multiply(left, right, None, "none", [], ""), 2.0 * size**3


def _convolve(size: int, dtype: torch.dtype) -> tuple[Run, float]:
    """Convolve 3 x 3, as most layers of a vision model do."""
    import torch

    count = max(1, size // _CHANNELS)
    pictures = torch.ones(count, _CHANNELS, _SIDE, _SIDE, dtype=dtype)
    weights = torch.ones(_CHANNELS, _CHANNELS, 3, 3, dtype=dtype)
    pictures, weights = (t.to(memory_format=torch.channels_last) for t in (pictures, weights))
    # At the border a part of the products is left out.
    pairs = (3 * _SIDE - 2) ** 2
    operations = 2.0 * count * _CHANNELS**2 * pairs
    return lambda: torch.conv2d(pictures, weights, padding=1), operations


def _copy_rate(threads: int, limit_s: float) -> float:
    import torch

    torch.set_num_threads(threads)
    # filled by the threads that copy it, so that it lies in the memory next to them
    source = torch.full((_COPY_BYTES // 4,), 1.0)
    target = torch.full_like(source, 0.0)
    return best_rate(lambda: target.copy_(source), 2.0 * _COPY_BYTES, limit_s)


def _jpeg_rate(limit_s: float) -> float:
    from PIL import Image

    photo = _make_photo()

    def run() -> Picture:
        with Image.open(io.BytesIO(photo)) as picture:
            width, height = picture.size
            scale = _SHORT_SIDE / min(width, height)
            size = (round(width * scale), round(height * scale))
            scaled = picture.convert("RGB").resize(size, Image.Resampling.BILINEAR)
        left, top = (size[0] - _CROP) // 2, (size[1] - _CROP) // 2
        return scaled.crop((left, top, left + _CROP, top + _CROP))

    return best_rate(run, 1.0, limit_s)


def _make_photo() -> bytes:
    """Give a JPEG file of the size and detail of a photo (about 17 kB): broad shapes and grain."""
    from PIL import Image

    dice = random.Random(0)  # noqa: S311 - a picture, not a secret

    def noise(size: tuple[int, int]) -> Picture:
        grain = Image.frombytes("RGB", size, dice.randbytes(3 * size[0] * size[1]))
        return grain.resize(_PHOTO, Image.Resampling.BICUBIC)

    picture = Image.blend(noise((8, 6)), noise((80, 60)), 0.15)
    picture = Image.blend(picture, noise(_PHOTO), 0.03)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=_JPEG_QUALITY)
    return file.getvalue()


def _host_to_device_rate(limit_s: float) -> float:
    import torch

    source = torch.ones(_COPY_BYTES, dtype=torch.uint8).pin_memory()
    target = torch.empty_like(source, device=_GPU)
    run = _until_done(lambda: target.copy_(source, non_blocking=True))
    return best_rate(run, float(_COPY_BYTES), limit_s)


def _gpu_compute_rate(dtype: torch.dtype, limit_s: float) -> float:
    """Give the rate of matrix products on the GPU, at a size that keeps all of it busy.

    No size is left out for the time that it took: to load the GPU's libraries takes longer.
    """
    import torch

    torch.set_float32_matmul_precision("high")  # with TF32; the cores were measured before
    size = _MATRIX
    while True:
        with torch.device(_GPU):
            multiply, operations = _multiply(size, dtype)
        run = _until_done(multiply)
        rate = best_rate(run, operations, 0)
        if size >= _MAX_MATRIX or operations / rate >= _MIN_RUN_S:
            return max(rate, best_rate(run, operations, max(limit_s, _LEAST_GPU_S)))
        size *= 2


def _gpu_copy_rate(limit_s: float) -> float:
    import torch

    torch.cuda.empty_cache()  # a training beside this may need what the products had
    source = torch.ones(_GPU_COPY_BYTES, dtype=torch.uint8, device=_GPU)
    target = torch.empty_like(source)

    def copy() -> None:
        for _ in range(_GPU_COPIES):
            target.copy_(source)

    return best_rate(_until_done(copy), 2.0 * _GPU_COPIES * _GPU_COPY_BYTES, limit_s)


def _until_done(start: Run) -> Run:
    """Give a run that ends when the GPU has done what it was given."""
    import torch

    def run() -> None:
        start()
        torch.cuda.synchronize()

    return run


def _quantities(cores: int) -> Iterator[tuple[str, Measure]]:
    """Give each field of `Speeds` that can be measured here; torch is imported after the first."""
    # Pillow does not need torch: this one is known even where the import uses up the budget
    yield "jpeg_one_core_images_per_s", _jpeg_rate
    import torch

    dtypes = {"fp32": torch.float32}
    if read_cpu().computes_bf16:  # else it is emulated, a hundred times slower
        dtypes["bf16"] = torch.bfloat16
    for name, dtype in dtypes.items():
        for where, threads in (("one_core", 1), ("all_cores", cores)):
            yield f"{name}_{where}_flop_per_s", partial(_compute_rate, dtype, threads)
    if _has_onednn_product():
        yield "onednn_product_gain", _onednn_gain
    for where, threads in (("one_core", 1), ("all_cores", cores)):
        yield f"copy_{where}_bytes_per_s", partial(_copy_rate, threads)
    if torch.cuda.is_available():
        yield "host_to_device_bytes_per_s", _host_to_device_rate
        yield "gpu_fp32_flop_per_s", partial(_gpu_compute_rate, torch.float32)
        yield "gpu_copy_bytes_per_s", _gpu_copy_rate
        with contextlib.suppress(RuntimeError):  # of a GPU that cannot be used: it is told above
            if torch.cuda.get_device_capability(_GPU) >= _BF16_CAPABILITY:
                yield "gpu_bf16_flop_per_s", partial(_gpu_compute_rate, torch.bfloat16)


def _measure_all(cores: int, budget_s: float, start_s: float) -> Iterator[SpeedReport]:
    """Give a report after each quantity; the time left is shared among those to come."""
    speeds: dict[str, float] = {}
    failures: list[str] = []
    to_come = len(fields(Speeds))
    for field, measure in _quantities(cores):
        left_s = start_s + budget_s - time.perf_counter()
        if left_s <= 0:
            failures.append("time was up before everything was measured: probe again")
            yield SpeedReport(speeds=Speeds(**speeds), failures=tuple(failures))
            return
        try:
            speeds[field] = measure(min(0.5, left_s / to_come))
        except Exception as error:  # noqa: BLE001 - whatever it was, the others are still worth it
            failures.append(f"{field} was not measured: {first_line(error)}")
        to_come -= 1
        yield SpeedReport(speeds=Speeds(**speeds), failures=tuple(failures))


def main() -> None:
    """Measure, and print a JSON document after each quantity."""
    start_s = time.perf_counter()
    parser = argparse.ArgumentParser(prog="python -m probes.speed", description=__doc__)
    parser.add_argument("--budget-s", type=float, default=7.0, help="time for everything")
    parser.add_argument("--cores", default="", help="logical cores to use, such as 0,1")
    arguments = parser.parse_args()
    allowed = os.sched_getaffinity(0)
    wanted = [int(core) for core in arguments.cores.split(",") if core] or sorted(allowed)
    if read_cpu().may_pin:  # else every container here would choose the same cores
        os.sched_setaffinity(0, allowed & set(wanted) or allowed)
    for report in _measure_all(len(wanted), arguments.budget_s, start_s):
        print(codec.encode(report).decode(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""Rate at which decoded pictures that exceed the memory are read, next to that of the disk.

A control group caps the memory (root). The pictures, of noise, take about twice that. Taken in
turns: the pictures in random order, by eight threads and past the page cache (``O_DIRECT``), which
is what the disk can do; and the loader of a training, in the order of its sampler. Then a training
whose steps compute for so long that the disk is busy for a part of the time that is stated, and
which reports how long its steps waited for their pictures. The disk is slowed down to a stated
rate where it is faster than the cores copy, by the control group too.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from mmap import mmap
from pathlib import Path
from typing import Any

from _block import CASES, BenchError, Output, Result, alternate, begin, make_parser, run_bench
from _cases import COUNT, SIDE, STEP_S, Noise
from _timed_steps import train_steps

from launch.plan import Plan
from launch.workload import Workload
from probes.cpu import read_cpu
from probes.timing import paired_ratio

_CASE = f"{CASES}:NoisePictures"
_ROOT = Path("/sys/fs/cgroup")
_PICTURE_BYTES = SIDE * SIDE * 3
_BATCH = 64
_THREADS = 8
_PAGE = 4096
_PICTURES = 16_000
_RATE_MB_PER_S = 150
_BUSY = 0.8
"""Part of a step in which the disk has to read."""

_BLOCKS, _TURN_S = 3, 6.0
_WARMUP_STEPS, _STEPS = 4, 60
_ENOUGH, _MOST_WAIT = 0.9, 2.0


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__, memory_mb=(1200, "of the group"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        return _run_capped(arguments.memory_mb, sys.argv[1:])
    os.environ[COUNT] = str(_PICTURES)
    return _measure(*begin(parser))


def _run_capped(memory_mb: int, given: Sequence[str]) -> int:
    """Run this program again in a control group, with a cache of its own."""
    with (
        tempfile.TemporaryDirectory(prefix="ddlplan-bench-", dir=_disk_folder()) as cache,
        _group(memory_mb, Path(cache)) as files,
    ):
        enter = 'for file in "$@"; do [ "$file" = -- ] && break; echo $$ > "$file" || exit 125; '
        enter += 'shift; done; shift; exec "$@"'
        command = ["sh", "-c", enter, "sh", *map(str, files), "--"]
        command += [sys.executable, __file__, *given, "--inside"]
        environment = {**os.environ, "DDLPLAN_CACHE": cache}
        return subprocess.run(command, env=environment, check=False).returncode


def _disk_folder() -> Path:
    """Give a folder on a disk: /tmp may be in memory."""
    from launch.system.cache import cache_folder, make_folder

    return make_folder(cache_folder())


@contextlib.contextmanager
def _group(memory_mb: int, folder: Path) -> Iterator[list[Path]]:
    """Make a control group of either version; give the files that a process enters it by."""
    name = f"ddlplan-bench-{os.getpid()}"
    device = os.stat(folder).st_dev  # noqa: PTH116 - the number of the disk
    disk = f"{os.major(device)}:{os.minor(device)}"
    memory, rate = memory_mb * 10**6, _RATE_MB_PER_S * 10**6
    if (_ROOT / "cgroup.controllers").is_file():
        (_ROOT / "cgroup.subtree_control").write_text("+memory +io")
        settings = {
            _ROOT / name / "memory.max": str(memory),
            _ROOT / name / "io.max": f"{disk} rbps={rate}",
        }
    else:
        settings = {
            _ROOT / "memory" / name / "memory.limit_in_bytes": str(memory),
            _ROOT / "blkio" / name / "blkio.throttle.read_bps_device": f"{disk} {rate}",
        }
    folders = list(dict.fromkeys(file.parent for file in settings))
    try:
        for one in folders:
            one.mkdir()
        for file, value in settings.items():
            file.write_text(value)
        yield [one / "cgroup.procs" for one in folders]
    except OSError as error:
        raise BenchError(f"no control group with a limit of memory and disk: {error}") from error
    finally:
        for one in folders:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    one.rmdir()
                if not one.exists():
                    break
                time.sleep(0.05)


def _measure(arguments: argparse.Namespace, out: Output) -> int:
    from launch.data.decoded_pictures import DecodedPictures

    decoded = DecodedPictures(Noise(_PICTURES), threads=2)
    if not decoded.is_large:
        raise BenchError("the pictures fit into the memory: use a smaller --memory-mb")
    for start in range(0, len(decoded), _BATCH):
        decoded.fill(range(start, min(start + _BATCH, len(decoded))))
    decoded._file.sync()
    size = decoded.layout.num_bytes
    out.say(f"{len(decoded)} pictures, {size / 1e9:.2f} GB, {arguments.memory_mb} MB of memory")
    turns = iter(range(10**6))
    pairs = alternate(
        lambda: _read_by_loader(decoded, next(turns)),
        lambda: _read_directly(decoded, next(turns)),
        blocks=_BLOCKS,
    )
    ours, disk = zip(*pairs, strict=True)
    disk_rate = sum(disk) / len(disk)
    step_s = _BATCH / disk_rate / _BUSY
    os.environ[STEP_S] = str(step_s)
    steps = train_steps(
        Workload(use_case=_CASE),
        Plan(strategy="sequential", node_batch=_BATCH, input="cache", allocator="retain"),
        read_cpu().core_ids,
        warmup=_WARMUP_STEPS,
        steps=_STEPS,
    )
    waited = sum(step.input_s for step in steps) / sum(step.time_s for step in steps)
    took_s = sum(step.time_s for step in steps) / len(steps)
    out.say()
    return out.conclude(
        [
            Result("the disk, past the page cache", disk_rate, "pictures/s"),
            Result("the loader", sum(ours) / len(ours), "pictures/s"),
            Result("the loader / the disk", paired_ratio(pairs), low=_ENOUGH),
            Result("a step that computes beside it", took_s, "s"),
            Result("the disk, of its time", 100 * _BATCH / disk_rate / took_s, "%"),
            Result("waiting for pictures, of its time", 100 * waited, "%", high=_MOST_WAIT),
        ]
    )


def _read_by_loader(decoded: Any, turn: int) -> float:
    """Read as a training does whose steps take no time; give pictures per second."""
    from launch.data.batch import num_samples
    from launch.data.loading import load
    from launch.data.samples import Part, ShareSampler
    from launch.data.split import NodeSplit

    decoded._file.forget(range(len(decoded)))
    sampler = ShareSampler(len(decoded), NodeSplit((_BATCH,), 0), part=Part(0, 1), seed=turn)
    count, started = 0, time.perf_counter()
    batches = load(decoded, iter(sampler.epoch(0)), loader_workers=0)
    for batch, _ in batches:
        count += num_samples(batch)
        if (elapsed_s := time.perf_counter() - started) > _TURN_S:
            break
    batches.close()  # type: ignore[attr-defined] # a generator
    return count / elapsed_s


def _read_directly(decoded: Any, turn: int) -> float:
    """Read pictures in random order with many requests at once, past the page cache."""
    layout = decoded.layout
    order = list(range(len(decoded)))
    random.Random(turn).shuffle(order)
    descriptor = os.open(layout.file, os.O_RDONLY | os.O_DIRECT)
    started = time.perf_counter()

    def read_some(part: int) -> int:
        buffer = mmap(-1, _PICTURE_BYTES + 2 * _PAGE)  # memory that begins at a page
        count = 0
        for index in order[part::_THREADS]:
            first = layout.pixels_offset + index * layout.picture_bytes
            start = first // _PAGE * _PAGE
            length = -(-(first + layout.picture_bytes - start) // _PAGE) * _PAGE
            os.preadv(descriptor, [memoryview(buffer)[:length]], start)
            count += 1
            if time.perf_counter() - started > _TURN_S:
                break
        return count

    try:
        with ThreadPoolExecutor(_THREADS) as pool:
            return sum(pool.map(read_some, range(_THREADS))) / (time.perf_counter() - started)
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    run_bench(main)

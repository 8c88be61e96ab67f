"""Rate of pictures from the cache, and the time for which a training step waits for them.

* cache: `launch.data`, one pinned worker a core, each reading its share of node batches of 128 as
  the trainer does, as uint8. What the training step adds, flips and normalising to fp32, is timed
  by itself;
* files: torchvision's ImageFolder with the same transforms, DataLoader with two workers, batch 128;
* a step: the trainer itself on the photos of simplebig, which reports how long it waited.

All read the same photos, from the page cache. Filling the picture cache is not timed, nor are
starts; the rate of the files is that from the first batch to the last.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from _block import BenchError, Result, alternate, begin, make_parser, run_bench
from _local_workers import run_workers, task_of_worker
from _timed_steps import train_steps

from launch.gradient_sync.node_channel.descriptors import SharedDescriptors
from launch.plan import Plan
from launch.reports import StepDone
from launch.workload import Workload
from probes.cpu import read_cpu
from probes.timing import Interval, Measurement, paired_ratio

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from launch.data.images.dataset import PhotoDataset

_USE_CASE = "simplebig"
_NODE_BATCH = 128
_RIVAL_WORKERS = 2
_WARMUP_STEPS, _STEPS = 3, 20
_READ_S = 5.0
"""In each run."""

_CACHE, _FILES, _PREPARE = "cache", "files", "prepare"
_LIMIT_S = 1800.0
# What the plan's allocator=retain sets, for programs that are not the trainer.
_RETAIN = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
_ENOUGH_RATIO = 25.0
_MOST_WAIT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """What one run of one way delivered."""

    pictures_per_s: float
    finished_per_s: float | None = None
    """With flips and normalising."""


def main() -> int:
    """Measure and show."""
    if (task := task_of_worker()) is not None:
        _work(task)
        return 0
    arguments, out = begin(make_parser(__doc__, blocks=(3, "of four runs each")))
    cores = read_cpu().core_ids
    found = _run(_PREPARE, cores)[0]
    out.say(f"{found['photos']} photos of {found['folder']}, {found['bytes'] / 1e6:.0f} MB decoded")
    pairs = alternate(
        lambda: _join(_run(_CACHE, cores)),
        lambda: _join(_run(_FILES, cores)),
        blocks=arguments.blocks,
    )
    workload = Workload(use_case=_USE_CASE)
    steps = {
        precision: train_steps(
            workload, _plan(precision, cores), cores, warmup=_WARMUP_STEPS, steps=_STEPS
        )
        for precision in ("fp32", "bf16")
    }
    out.say()
    return out.conclude([*_rates(pairs), *_shares(steps, [cache for cache, _ in pairs])])


def _rates(pairs: Sequence[tuple[Leg, Leg]]) -> list[Result]:
    ours, files = zip(*pairs, strict=True)
    return [
        _rate("uint8 from the cache", [leg.pictures_per_s for leg in ours]),
        _rate("with flip and normalise to fp32", _finished(ours)),
        _rate("ImageFolder, 2 loader workers", [leg.pictures_per_s for leg in files]),
        Result(
            "rate of the cache / ImageFolder",
            paired_ratio([(a.pictures_per_s, b.pictures_per_s) for a, b in pairs]),
            low=_ENOUGH_RATIO,
        ),
        Result(
            "the same, flip and normalise included",
            paired_ratio(
                [(a, b.pictures_per_s) for a, b in zip(_finished(ours), files, strict=True)]
            ),
        ),
    ]


def _shares(steps: dict[str, list[StepDone]], ours: Sequence[Leg]) -> list[Result]:
    """Say which part of a step goes into its input."""
    rates = zip(_finished(ours), [leg.pictures_per_s for leg in ours], strict=True)
    finish_s = _NODE_BATCH * median(1 / finished - 1 / read for finished, read in rates)
    results = []
    for precision, timed in steps.items():
        step_s = median(step.time_s for step in timed)
        waited = sum(step.input_s for step in timed) / sum(step.time_s for step in timed)
        results += [
            Result(f"{precision}: step", step_s, "s"),
            Result(
                f"{precision}: waiting for input, of all step time",
                100 * waited,
                "%",
                high=100 * _MOST_WAIT,
            ),
            Result(f"{precision}: flip and normalise, of a step", 100 * finish_s / step_s, "%"),
        ]
    return results


def _rate(figure: str, rates: Sequence[float]) -> Result:
    return Result(figure, _interval(rates), "pictures/s")


def _interval(rates: Sequence[float]) -> Interval:
    return Measurement(samples_s=tuple(rates)).interval_s()


def _finished(legs: Sequence[Leg]) -> list[float]:
    return [leg.finished_per_s for leg in legs if leg.finished_per_s is not None]


def _plan(precision: str, cores: Sequence[int]) -> Plan:
    """Give a plan such as tune finds: a worker a core, everything else as fast as it can be."""
    workers = len(cores)
    return Plan(
        strategy="processes" if workers > 1 else "sequential",
        processes=workers,
        replicas=workers,
        node_batch=_NODE_BATCH,
        memory_format="channels_last",
        precision=precision,
        input="cache",
        allocator="retain",
    )


def _join(found: Sequence[dict[str, Any]]) -> Leg:
    """Add up what the workers of one run delivered at the same time."""
    finished = [worker["finished_per_s"] for worker in found]
    return Leg(
        pictures_per_s=sum(worker["pictures_per_s"] for worker in found),
        finished_per_s=None if None in finished else sum(finished),
    )


def _run(way: str, cores: Sequence[int]) -> list[dict[str, Any]]:
    """Run the programs of one way to their end."""
    ranks = len(cores) if way == _CACHE else 1
    task = {"way": way, "ranks": ranks}
    return run_workers(
        __file__,
        [task | {"rank": rank, "core": cores[rank]} for rank in range(ranks)],
        limit_s=_LIMIT_S,
        environment=_RETAIN if way == _CACHE else {},
    )


def _work(task: dict[str, Any]) -> None:
    """Be one worker; print what was found."""
    from _prepared_case import load_prepared

    from launch.data.images.dataset import PhotoDataset
    from launch.use_cases import resolve

    is_first = task["way"] == _PREPARE
    case = load_prepared(_USE_CASE) if is_first else resolve(_USE_CASE).load()
    photos = case.dataset(None, train=True)
    assert isinstance(photos, PhotoDataset)
    ways = {_CACHE: _read_cache, _FILES: _read_files, _PREPARE: _fill}
    print(json.dumps(ways[task["way"]](task, photos)), flush=True)


def _fill(_: dict[str, Any], photos: PhotoDataset) -> dict[str, Any]:
    """Decode what is missing, with all cores."""
    from launch.data.decoded_pictures import DecodedPictures

    decoded = DecodedPictures(photos, threads=read_cpu().usable_cores)
    decoded.fill(range(len(decoded)))
    size = len(decoded) * decoded.layout.picture_bytes
    return {"photos": len(decoded), "folder": str(photos.folder), "bytes": size}


def _read_cache(task: dict[str, Any], photos: PhotoDataset) -> dict[str, Any]:
    """Read this worker's share, first as uint8, then finished."""
    import torch

    from launch.data.batch import move_batch
    from launch.data.decoded_pictures import DecodedPictures
    from launch.local_group.group import LocalProcessGroup

    os.sched_setaffinity(0, [task["core"]])
    torch.set_num_threads(1)
    descriptors = SharedDescriptors.from_numbers(task["descriptors"])
    group = LocalProcessGroup(task["rank"], task["ranks"], [task["core"]], descriptors)
    decoded = DecodedPictures(photos, threads=1)
    decoded.fill(range(len(decoded)))
    device = torch.device("cpu")
    rates = []
    for finish in (lambda batch: batch, lambda batch: move_batch(batch, device, _last())):
        _consume(decoded, task, finish, seconds=0.5)
        group.barrier()
        rates.append(_consume(decoded, task, finish, seconds=_READ_S))
        group.barrier()
    return dict(zip(("pictures_per_s", "finished_per_s"), rates, strict=True))


def _last() -> Any:
    import torch

    return torch.channels_last


def _consume(decoded: Dataset[Any], task: dict[str, Any], finish: Any, seconds: float) -> float:
    """Read for a while; give the samples per second."""
    from itertools import count

    from launch.data.batch import num_samples
    from launch.data.loading import load
    from launch.data.samples import Part, ShareSampler
    from launch.data.split import NodeSplit

    sampler = ShareSampler(
        len(decoded),  # type: ignore[arg-type]
        NodeSplit((_NODE_BATCH,), 0),
        part=Part(task["rank"], task["ranks"]),
        seed=0,
    )
    samples, started = 0, time.perf_counter()
    for epoch in count():
        for batch, _ in load(decoded, iter(sampler.epoch(epoch)), loader_workers=0):
            if batch is not None:
                samples += num_samples(finish(batch))
            elapsed_s = time.perf_counter() - started
            if elapsed_s >= seconds:
                return samples / elapsed_s
    raise AssertionError("epochs never end")


def _read_files(task: dict[str, Any], photos: PhotoDataset) -> dict[str, Any]:
    """Read the same photos the usual way."""
    from torch.utils.data import DataLoader, Subset
    from torchvision import transforms
    from torchvision.datasets import ImageFolder

    from launch.data.images.dataset import CROP_SIDE, MEAN, RESIZE_SIDE, STD

    whole = ImageFolder(
        str(photos.folder),
        transforms.Compose(
            [
                transforms.Resize(RESIZE_SIDE),
                transforms.CenterCrop(CROP_SIDE),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD),
            ]
        ),
    )
    wanted = {os.path.join(photos.folder, name) for name, _ in photos.photos}  # noqa: PTH118
    same = Subset(whole, [i for i, (file, _) in enumerate(whole.samples) if file in wanted])
    if len(same) != len(photos):
        raise BenchError(f"ImageFolder finds {len(same)} of {len(photos)} photos")
    loader = DataLoader(same, batch_size=_NODE_BATCH, shuffle=True, num_workers=_RIVAL_WORKERS)
    samples, started = 0, 0.0
    for number, (pictures, _) in enumerate(loader):
        if number == 0:
            started = time.perf_counter()
            continue
        samples += len(pictures)
        if time.perf_counter() - started >= _READ_S:
            break
    if not samples:
        raise BenchError(f"{len(photos)} photos: two batches of {_NODE_BATCH} are needed")
    elapsed_s = time.perf_counter() - started
    return {"pictures_per_s": samples / elapsed_s, "finished_per_s": None}


if __name__ == "__main__":
    run_bench(main)

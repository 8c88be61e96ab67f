"""Predicted and measured epochs with data on another machine, and the advice to copy them.

Two hosts of one machine (see `tests/hosts/testbed`): one serves the files through ssh (sshfs, which
needs nothing of the kernel but FUSE), over a link of limited rate, and the other trains from them.
Once with its page cache, so that later epochs find the files in memory; and once without
(``direct_io``), as where the data are larger than the memory. For both: `ddlplan probe --data`,
`tune` and `launch`; then the files are copied to a local folder and `launch` trains from there.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from _block import CASES, BenchError, Output, Result, begin, make_parser, run_bench
from _cases import ARRAY_SHAPE
from testbed.bed import Testbed, TestHost

from planner.input_cost.lines import data_facts
from probes import codec
from probes.hardware import DataSpeed

_CASE = f"{CASES}:ArrayFiles"
_FILES, _EPOCHS = 1500, 3
_MOST_OFF = 10.0
_LIMIT_S = 600.0
_MOUNTS = {"cached": "kernel_cache", "uncached": "direct_io"}
"""By name, the option of sshfs."""

_SFTP_SERVER = "/usr/lib/openssh/sftp-server"
"""The hosts' sshd is not told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one way to mount gave."""

    mount: str
    predicted: dict[str, Any]
    epochs_s: tuple[float, ...]
    copied_s: tuple[float, ...]
    """Of the training from the local copy."""
    copy_s: float

    @property
    def saved_s(self) -> Iterator[float]:
        """What the copy has saved after each epoch."""
        saved = 0.0
        for here_s, copied_s in zip(self.epochs_s, self.copied_s, strict=True):
            saved += here_s - copied_s
            yield saved

    def epochs_until_copied(self) -> float:
        """Give the epochs after which the copy had paid, or would have with more like the last."""
        saved = list(self.saved_s)
        for number, so_far in enumerate(saved, start=1):
            if so_far > self.copy_s:
                return number
        later_s = self.epochs_s[-1] - self.copied_s[-1]
        if later_s < 0.02 * self.epochs_s[-1]:
            return float("inf")
        return len(saved) + (self.copy_s - saved[-1]) / later_s


def main() -> int:
    """Measure and show."""
    if shutil.which("sshfs") is None:
        raise BenchError("no sshfs: install it, as by apt-get install sshfs")
    parser = make_parser(__doc__)
    parser.add_argument("--rate", default="100mbit", help="of the link (100mbit)")
    arguments, out = begin(parser)
    results: list[Result] = []
    with Testbed(2, rate=arguments.rate) as bed:
        server, trainer = bed.hosts
        _write_files(server.own_scratch / "data")
        for mount in _MOUNTS:
            found = _try_mount(bed, trainer, mount, out)
            out.say(f"{mount}: {json.dumps(found.predicted)}")
            shown = ", ".join(f"{time_s:.1f}" for time_s in found.epochs_s)
            local = ", ".join(f"{time_s:.1f}" for time_s in found.copied_s)
            out.say(f"{mount}: epochs {shown} s; copied in {found.copy_s:.1f} s, then {local} s")
            results += _judge(found)
    out.say()
    return out.conclude(results)


def _write_files(folder: Path) -> None:
    """Write arrays, a hundred in each folder."""
    generator = np.random.default_rng(0)
    for number in range(_FILES):
        part = folder / f"{number // 100:04}"
        part.mkdir(parents=True, exist_ok=True)
        np.save(part / f"{number:06}.npy", generator.integers(0, 256, ARRAY_SHAPE, np.uint8))


def _judge(found: Found) -> Iterator[Result]:
    for name, predicted_s, measured_s in (
        ("first epoch", found.predicted["first_epoch_s"], found.epochs_s[0]),
        ("later epoch", found.predicted["later_epoch_s"], found.epochs_s[-1]),
    ):
        yield Result(
            f"{found.mount}: {name}, measured / predicted",
            100 * measured_s / predicted_s,
            "%",
            low=100 - _MOST_OFF,
            high=100 + _MOST_OFF,
        )
    advised = found.predicted["copy_pays_after_epochs"] or float("inf")
    measured = found.epochs_until_copied()
    is_right = advised == measured or abs(advised - measured) <= max(1.0, 0.2 * measured)
    yield Result(
        f"{found.mount}: copy pays after {measured:.1f} epochs, advised {advised}: right",
        float(is_right),
        low=1.0,
    )


def _try_mount(bed: Testbed, trainer: TestHost, mount: str, out: Output) -> Found:
    """Measure, search and train with the files mounted in one way; then with a copy of them."""
    work = bed.folder / f"work-{mount}"
    work.mkdir()
    data = work / "data"
    data.mkdir()
    ddlplan = _Program(trainer, work)
    with _mounted(bed, trainer, data, mount):
        (node,) = ddlplan.run("probe", "--data", data)
        (speed,) = (codec.convert(one, DataSpeed, source="data") for one in node["data"])
        for name, text in data_facts(speed):
            out.say(f"{name:<13}{text}")
        search = ("--use-case", _CASE, "--data", data)
        ddlplan.run(
            *("tune", *search, "--budget", "40s", "--batch-size", 32),
            *("--strategies", "sequential,processes"),
        )
    with _mounted(bed, trainer, data, mount):  # anew: nothing of it is in the page cache
        launched = ddlplan.run("launch", *search, "--epochs", _EPOCHS)
    copy = work / "copy"
    with _mounted(bed, trainer, data, mount):
        started = time.perf_counter()
        _checked(trainer, ["cp", "-r", str(data), str(copy)])
        _checked(trainer, ["sync", "-f", str(copy)])
        copy_s = time.perf_counter() - started
    local = ddlplan.run("launch", "--use-case", _CASE, "--data", copy, "--epochs", _EPOCHS)
    shutil.rmtree(copy)
    return Found(
        mount=mount,
        predicted=launched["input"],
        epochs_s=tuple(epoch["train_time_s"] for epoch in launched["epochs"]),
        copied_s=tuple(epoch["train_time_s"] for epoch in local["epochs"]),
        copy_s=copy_s,
    )


@contextmanager
def _mounted(bed: Testbed, trainer: TestHost, place: Path, mount: str) -> Iterator[None]:
    """Mount the server's files on the host that trains."""
    server = bed.hosts[0]
    source = f"{server.name}:{bed.scratch}/data"
    options = f"{_MOUNTS[mount]},sftp_server={_SFTP_SERVER}"
    command = ["sshfs", "-F", str(bed.ssh_config), "-o", options, source, str(place)]
    with place.with_name("sshfs.log").open("wb") as log:  # its ssh would keep a pipe open
        ended = trainer.run(command, capture_output=False, stdout=log, stderr=log)
    if ended.returncode:
        raise BenchError(f"sshfs: {place.with_name('sshfs.log').read_text().strip()}")
    try:
        yield
    finally:
        trainer.run(["umount", str(place)])


def _checked(host: TestHost, argv: Sequence[str]) -> None:
    ended = host.run(argv, timeout=_LIMIT_S)
    if ended.returncode:
        raise BenchError(f"{' '.join(argv)}: {ended.stderr.strip()}")


@dataclass(frozen=True, slots=True)
class _Program:
    """ddlplan on a host, in a folder."""

    host: TestHost
    folder: Path

    def run(self, *arguments: object) -> Any:
        """Run a command to its end; give the data of its JSON."""
        root = ["--allow-run-as-root"] if arguments[0] == "launch" else []
        words = [sys.executable, "-P", "-m", "planner", *map(str, arguments), *root, "--json"]
        command = self.host.command(words, self.folder)
        ended = subprocess.run(
            command,
            env={**os.environ, "DDLPLAN_CACHE": str(self.folder / "cache")},
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if ended.returncode:
            raise BenchError(f"{' '.join(words)}: {ended.stderr.strip()}")
        return json.loads(ended.stdout)["data"]


if __name__ == "__main__":
    run_bench(main)

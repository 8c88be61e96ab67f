"""A checkpoint that somebody has crafted ends in one line: digests say nothing of values."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import StepLR

from launch.checkpoints.checkpoint import DOCUMENT, Checkpoint
from launch.checkpoints.folder import MANIFEST, find_latest
from launch.checkpoints.manifest import Manifest, _digest
from launch.checkpoints.restoring import restore
from launch.checkpoints.training_state import OptimizerParts, TrainingState
from launch.checkpoints.worker_part import make_part
from launch.checkpoints.writer import CheckpointWriter
from launch.errors import CheckpointError
from launch.local_group.group import LocalThreadGroup

BATCH = 8
STATE = "optimizer-0.safetensors"
DEEP = 5000


class Worker:
    """Trains a layer by itself."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.schedule = StepLR(self.optimizer, 2)

    def describe(self) -> TrainingState:
        parts = OptimizerParts.of_parameters(self.optimizer, self.model)
        names = list(self.model.state_dict())
        return TrainingState(models=[self.model], weights=names, optimizers=[parts])

    def step(self) -> None:
        self.model(torch.ones(BATCH, 3)).sum().backward()
        self.optimizer.step()
        self.schedule.step()


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    """A checkpoint as it was written, which tests leave as it is."""
    worker = Worker()
    worker.step()
    (member,) = LocalThreadGroup.create([()])
    writer = CheckpointWriter(tmp_path_factory.mktemp("written") / "kept", member)
    manifest = Manifest(
        use_case="tiny",
        step=1,
        epoch=0,
        position=BATCH,
        samples=160,
        seed=7,
        global_batch=BATCH,
        node_batches=(BATCH,),
    )
    path = writer.save(partial(make_part, worker.describe(), [worker.schedule]), manifest)
    writer.close()
    return path


@pytest.fixture
def checkpoint(written, tmp_path) -> Path:
    """A copy of it, to be changed."""
    return shutil.copytree(written.parent, tmp_path / "kept") / written.name


def sign(path: Path, **changes: Any) -> None:
    """Change the manifest, and let it say that the files are as they were written."""
    values = json.loads((path / MANIFEST).read_bytes())
    del values["sha256"]
    for record in values["files"]:
        content = (path / record["name"]).read_bytes()
        record |= {"num_bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    values |= changes
    values["sha256"] = _digest(values)
    (path / MANIFEST).write_text(json.dumps(values))


def split(content: bytes) -> tuple[bytes, bytes]:
    """Split a file of tensors into its header and its data."""
    end = 8 + int.from_bytes(content[:8], "little")
    return content[8:end], content[end:]


def forge(path: Path, header: bytes, data: bytes, length: int | None = None) -> None:
    size = len(header) if length is None else length
    (path / STATE).write_bytes(size.to_bytes(8, "little") + header + data)
    sign(path)


def resume(path: Path) -> None:
    assert find_latest(path.parent).warnings == ()
    worker = Worker()
    with Checkpoint(path) as opened:
        restore(worker.describe(), [worker.schedule], opened, global_batch=BATCH)
        dict(opened.errors())


def test_it_is_restored_as_it_was_written(checkpoint):
    sign(checkpoint)
    resume(checkpoint)


def put(*keys: str | int, value: object) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        *outer, last = keys
        for key in outer:
            document = document[key]
        document[last] = value

    return change


WEIGHT = ("optimizers", 0, "parameters", "weight")
PIECE = (*WEIGHT, "pieces", 0)
FORGED = [
    put("others", value=[1]),
    put("others", value={"x": {"__ddlplan__": "counter", "is": 3}}),
    put("errors", value=["weight"]),
    put("errors", value={"weight": "nothing"}),
    put("optimizers", value=7),
    put("optimizers", 0, value="Adam"),
    put("optimizers", 0, "groups", value=3),
    put("optimizers", 0, "groups", 0, "settings", value=[1]),
    put("optimizers", 0, "loose", value=[1]),
    put("optimizers", 0, "parameters", value=[1]),
    put("schedules", value={"kind": 1}),
    put("schedules", 0, "state", value=[1]),
    put(*WEIGHT, "pieces", value=None),
    put(*WEIGHT, "pieces", value=["x"]),
    put(*WEIGHT, "shape", value=["x"]),
    put(*WEIGHT, "shape", value=[-1, 2]),
    put(*WEIGHT, "shape", value=[2**60]),
    put(*WEIGHT, "shape", value=[10**30]),
    put(*WEIGHT, "strides", value=[2**40, 1]),
    put(*PIECE, "values", value=[1]),
    put(*PIECE, "values", value={"step": {"__ddlplan__": "float", "is": "x"}}),
    put(*PIECE, "elements", value={"exp_avg": "nothing"}),
    put(*PIECE, "elements", value=[[]]),
    put(*PIECE, "start", value="x"),
    put(*PIECE, "start", value=-3),
    put(*PIECE, "count", value=None),
]


@pytest.mark.parametrize("number", range(len(FORGED)))
def test_document_that_no_worker_writes_is_one_line(number, checkpoint):
    """The story: of these, the most ended in a traceback."""
    header, data = split((checkpoint / STATE).read_bytes())
    entries = json.loads(header)
    document = json.loads(entries["__metadata__"][DOCUMENT])
    FORGED[number](document)
    entries["__metadata__"][DOCUMENT] = json.dumps(document)
    forge(checkpoint, json.dumps(entries).encode(), data)
    with pytest.raises(CheckpointError) as refused:
        resume(checkpoint)
    assert "\n" not in str(refused.value)
    assert len(list(checkpoint.iterdir())) == 3


def test_document_that_is_nested_too_deeply_is_one_line(checkpoint):
    header, data = split((checkpoint / STATE).read_bytes())
    entries = json.loads(header)
    entries["__metadata__"][DOCUMENT] = "[" * DEEP + "]" * DEEP
    forge(checkpoint, json.dumps(entries).encode(), data)
    with pytest.raises(CheckpointError, match="cannot be read: "):
        resume(checkpoint)


@pytest.mark.parametrize("length", [0, 7, 10**8, 10**12, 2**63, 2**64 - 1])
def test_header_of_another_length_is_one_line(length, checkpoint):
    forge(checkpoint, *split((checkpoint / STATE).read_bytes()), length=length)
    with pytest.raises(CheckpointError, match="cannot be read: "):
        resume(checkpoint)


@pytest.mark.parametrize("seed", range(8))
def test_bytes_that_are_changed_at_random_end_in_no_traceback(seed, checkpoint):
    dice, content = random.Random(seed), (checkpoint / STATE).read_bytes()
    header_bytes = len(content) - len(split(content)[1])
    for _ in range(25):
        changed = bytearray(content)
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(header_bytes)
            changed[place] = dice.choice([dice.randrange(256), *b'09-e"[]{},:'])
        (checkpoint / STATE).write_bytes(changed[: dice.choice([None, dice.randrange(8, 900)])])
        sign(checkpoint)
        with suppress(CheckpointError):
            resume(checkpoint)


@pytest.mark.parametrize(
    "changes",
    [
        {"step": -1},
        {"step": 10**30},
        {"position": -1},
        {"samples": 0},
        {"seed": -1},
        {"global_batch": 0},
        {"trained_s": float("nan")},
        {"hosts": ["a", "b"]},
        *({"files": [{"name": name, "num_bytes": 0, "sha256": ""}]} for name in ("..", "a\0b")),
        {"files": [{"name": "\ud800", "num_bytes": 0, "sha256": ""}]},
        {"files": [{"name": "a\x1b[31mb", "num_bytes": 0, "sha256": ""}]},
        {"files": [{"name": "pipe", "num_bytes": 0, "sha256": ""}]},
        {"files": [{"name": "zero", "num_bytes": 0, "sha256": ""}]},
    ],
)
def test_manifest_that_no_training_writes_is_one_line(changes, checkpoint):
    """The story: a pipe was waited for, and a device read, for ever."""
    os.mkfifo(checkpoint / "pipe")
    (checkpoint / "zero").symlink_to("/dev/zero")
    sign(checkpoint, **changes)
    with pytest.raises(CheckpointError, match=r"^no usable checkpoint in ") as refused:
        find_latest(checkpoint.parent)
    assert str(refused.value).isprintable()
    assert (checkpoint / STATE).exists()


def test_file_that_is_named_twice_is_not_broadcast_twice(checkpoint):
    sign(checkpoint, files=2 * json.loads((checkpoint / MANIFEST).read_bytes())["files"])
    with pytest.raises(CheckpointError, match="a file is named twice"):
        find_latest(checkpoint.parent)


def test_pipe_in_place_of_a_manifest_is_not_waited_for(checkpoint):
    (checkpoint / MANIFEST).unlink()
    os.mkfifo(checkpoint / MANIFEST)
    with pytest.raises(CheckpointError, match="is no regular file"):
        find_latest(checkpoint.parent)

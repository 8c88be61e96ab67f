"""What does a checkpoint say of itself? Where in which training it was made, and of which files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from launch.errors import CheckpointError

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file of a checkpoint, as it was written."""

    name: str
    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One checkpoint: everything but tensors, settings of the optimizer and of the schedule.

    A training is in epoch ``epoch``, of which ``position`` samples are done.
    """

    use_case: str
    """As the user names it."""

    step: int
    """Optimizer steps done since the training began."""

    epoch: int
    """Epochs done."""

    position: int
    """Samples of the next epoch that all nodes have done."""

    samples: int
    """Training samples of an epoch."""

    seed: int

    global_batch: int
    node_batches: tuple[int, ...]
    """Of each node, at the time of writing."""

    hosts: tuple[str, ...] = ()
    """What the nodes are called, in the same order."""

    plans: tuple[Mapping[str, Any], ...] = ()
    """Of each node that is known to the writer, the first one's first: `Plan.to_json`."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the writing node's strategy found out before its first step: `TrainStep.facts`."""

    software: Mapping[str, str] = field(default_factory=dict)
    """Versions of what wrote it."""

    created_at: str = ""
    """ISO 8601, in UTC."""

    trained_s: float = 0.0
    """Wall clock of the training so far, of all its runs."""

    files: tuple[FileRecord, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def steps_of(self, global_batch: int) -> int:
        """Give the number of steps that the training so far makes with this global batch."""
        if global_batch == self.global_batch:
            return self.step
        return self.epoch * -(-self.samples // global_batch) + -(-self.position // global_batch)

    def encode(self) -> bytes:
        """Give the manifest as JSON, with a digest of its other values."""
        values = asdict(self)
        return json.dumps(values | {"sha256": _digest(values)}, indent=1).encode() + b"\n"

    @classmethod
    def decode(cls, document: bytes) -> Manifest:
        """Read a manifest that `encode` wrote.

        Raises:
            CheckpointError: It is damaged, or of a newer schema.
        """
        try:
            values = json.loads(document)
            version = int(values["schema_version"])
            if version > SCHEMA_VERSION:
                raise NewerCheckpointError(
                    f"schema_version={version} and this ddlplan reads up to {SCHEMA_VERSION}: "
                    "use the newer ddlplan that wrote it"
                )
            if values.pop("sha256") != _digest(values):
                raise ValueError("its values are not those that were written")
            values["files"] = tuple(FileRecord(**record) for record in values["files"])
            if strange := [file.name for file in values["files"] if "/" in file.name]:
                raise ValueError(f"a file is named {strange[0]}")
            values["node_batches"] = tuple(values["node_batches"])
            values["plans"] = tuple(values["plans"])
            values["hosts"] = tuple(values["hosts"])
            return cls(**values)
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"its manifest is damaged ({error})") from error


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class NewerCheckpointError(CheckpointError):
    """A newer ddlplan wrote it: no reason to take an older checkpoint instead."""

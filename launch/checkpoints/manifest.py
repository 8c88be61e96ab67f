"""Manifest of a checkpoint: the point of the training where it was made, and its files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from launch.errors import CheckpointError
from probes import codec
from probes.codec import Count, Natural, NonNegative, Whole
from probes.errors import InvalidDocumentError

SCHEMA_VERSION = 2
_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """One file of a checkpoint, as it was written."""

    name: str
    num_bytes: Whole
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BestValidation:
    """The best validation so far, of a training that keeps its weights."""

    epoch: Whole
    """From 1."""

    loss: float

    weights: str
    """File of the weights that had it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """Everything of a checkpoint but tensors and settings of the optimizer and of the schedule.

    The training is in epoch ``epoch``, of which ``position`` samples are done.
    """

    use_case: str
    """As the user names it."""

    step: Whole
    """Optimizer steps done since the training began."""

    epoch: Whole
    """Epochs done."""

    position: Whole
    """Samples of the next epoch that all nodes have done."""

    samples: Count
    """Training samples of an epoch."""

    seed: Natural

    global_batch: Count
    node_batches: tuple[Whole, ...]
    """Of each node, at the time of writing."""

    hosts: tuple[str, ...] = ()
    """Names of the nodes, in the same order."""

    plans: tuple[Mapping[str, Any], ...] = ()
    """Of each node that is known to the writer, the first one's first. As JSON: a later ddlplan
    may have other settings."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """What the writing node's strategy found out before its first step: `TrainStep.facts`."""

    software: Mapping[str, str] = field(default_factory=dict)
    """Versions of the software that wrote it."""

    created_at: str = ""
    """ISO 8601, in UTC."""

    trained_s: NonNegative = 0.0
    """Wall clock of the training so far, of all its runs."""

    best: BestValidation | None = None
    """``None`` where the best weights are not kept, or nothing was validated yet."""

    files: tuple[FileRecord, ...] = ()
    schema_version: int = SCHEMA_VERSION

    def steps_of(self, global_batch: int) -> int:
        """Give the number of steps that the training so far makes with this global batch."""
        if global_batch == self.global_batch:
            return self.step
        return self.epoch * -(-self.samples // global_batch) + -(-self.position // global_batch)

    def encode(self) -> bytes:
        """Give the manifest as JSON, with a digest of its other values."""
        values = codec.to_builtins(self)
        return codec.encode(values | {"sha256": _digest(values)}, indent=1) + b"\n"

    @classmethod
    def decode(cls, document: bytes) -> Manifest:
        """Read a manifest that `encode` wrote.

        Raises:
            CheckpointError: It is damaged, or of a newer schema.
        """
        try:
            values = codec.decode(document, dict[str, Any], source="manifest")
            version = codec.convert(values.get("schema_version"), int, source="schema_version")
            if version > SCHEMA_VERSION:
                raise NewerCheckpointError(
                    f"schema_version={version} and this ddlplan reads up to {SCHEMA_VERSION}: "
                    "use the newer ddlplan that wrote it"
                )
            if values.pop("sha256", None) != _digest(values):
                raise InvalidDocumentError("its values are not those that were written")
            manifest = codec.convert(values, cls, source="manifest", allow_unknown_keys=False)
            names = [file.name for file in manifest.files]
            if strange := [name for name in names if not _NAME.fullmatch(name)]:
                raise InvalidDocumentError(f"a file is named {codec.shorten(strange[0])}")
            if len(set(names)) < len(names):
                raise InvalidDocumentError("a file is named twice")
            if manifest.hosts and len(manifest.hosts) != len(manifest.node_batches):
                raise InvalidDocumentError(
                    f"{len(manifest.hosts)} hosts and {len(manifest.node_batches)} node_batches"
                )
            return manifest
        except (InvalidDocumentError, RecursionError) as error:
            raise CheckpointError(f"its manifest is damaged ({error})") from error


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


class NewerCheckpointError(CheckpointError):
    """A newer ddlplan wrote it: no reason to take an older checkpoint instead."""

"""What must a planner know of a use case, without importing it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFacts:
    """What one worker found when it loaded the use case and its data."""

    spec: str
    """The use case as the user names it: built-in name, ``module:object`` or ``file.py:object``."""

    default_batch: int
    """The baseline's node batch."""

    train_samples: int
    validation_samples: int

    parameter_count: int
    parameter_bytes: int
    """Size of the parameters that are trained, and so of one set of gradients."""

    has_layers: bool
    """Whether the model can be cut into consecutive layers."""

    digest: str
    """Changes when the model, the data or the use case's own code does."""

    batch_choices: tuple[int, ...] = ()
    """Node batches that may be tried, ascending; the user's limits are in them."""

    precisions: tuple[str, ...] = ("fp32",)
    """Precisions that may be tried."""

    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Give the facts as plain values that JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CaseFacts:
        """Read facts back from `to_json`."""
        known = {f.name for f in fields(cls)} & values.keys()
        chosen = {key: values[key] for key in known}
        for key in ("batch_choices", "precisions", "warnings"):
            chosen[key] = tuple(chosen.get(key, ()))
        return cls(**chosen)

"""Study: the trials that can be compared with each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from launch.case_facts import CaseFacts
from planner.plans.software import measurement_key
from planner.search.likeness import SimilarTrials
from planner.trials.result import TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What stays the same while plans are tried, so that their times can be compared.

    The same command finds its study again by `key`, and goes on where it stopped. Budget, seed
    and the choice of strategies are no part of it: they decide which plans are tried, not how
    fast one is, so a second search with more time builds on the first.
    """

    use_case: str
    """As it was asked for: a name, ``package.module:object`` or ``file.py:object``. It is no part
    of the key: a use case stays the same wherever it lies."""

    node: str
    """Host name. Two machines with equal hardware still differ in load, cooling and disks."""

    fingerprint: str
    precision: str
    """What the search may choose: ``fp32``, ``bf16`` or ``auto``."""

    software: Mapping[str, str]
    data: str
    """Digest of the use case: `launch.case_facts.CaseFacts.digest`."""

    seed: int
    """Seed of the search that began the study."""

    facts: CaseFacts | None = None
    """What is trained, as its last search found it; ``None`` in studies of the first releases. No
    part of the key: ``data`` is."""

    @property
    def key(self) -> str:
        """Name of everything that makes trials comparable, the same in every process."""
        facts = [self.data, self.node, self.fingerprint, self.precision]
        return measurement_key(facts, self.software)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A finished trial as the store keeps it."""

    id: int
    study_id: int

    number: int
    """Position in its study, from 0."""

    created_at: datetime
    """When it ended."""

    result: TrialResult

    use_case: str | None = None
    """Of its study; ``None`` where nobody asked."""

    is_generated: bool | None = None
    """Whether that use case made its samples up; ``None`` where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedTrial:
    """Where a finished trial was stored."""

    id: int
    number: int
    """Position in its study, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierTrials:
    """What a study knows when a search of it begins, or goes on."""

    study_id: int

    results: tuple[TrialResult, ...] = ()
    """In the order in which they ended."""

    finished: int = 0
    """So many of them, the first ones, belong to searches that ended."""

    similar: tuple[SimilarTrials, ...] = ()
    """Trials of other machines and use cases, the most alike first."""

    newest: int = 0
    """Number of the newest trial in the database by then; these are no later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterTrials:
    """What came into the database while a search goes on, its own trials among it."""

    newest: int
    """Number of the newest of them."""

    own: tuple[StoredTrial, ...] = ()
    """Of the same study."""

    similar: tuple[SimilarTrials, ...] = ()
    """Of the same use case on other machines with equal hardware."""

"""Measurements that a paper's tables still want."""

from __future__ import annotations

from dataclasses import dataclass

from planner.trials.result import TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTrial:
    """Trials of a strategy, beside the baseline."""

    use_case: str
    strategy: str

    least_s: float | None = None
    """Time below which no two plans can be compared; ``None`` where that is not known yet."""

    weight: float = 1.0
    """Its part of the time, against those of the others."""

    @property
    def key(self) -> str:
        return trial_key(self.use_case, self.strategy)

    @property
    def what(self) -> str:
        return f"timing {self.use_case} with {self.strategy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedPlan:
    """The best plan of a use case, once each strategy was tried: `launch` uses it from then on."""

    use_case: str
    least_s: float | None = None
    weight: float = 0.5

    @property
    def key(self) -> str:
        return f"plan {self.use_case}"

    @property
    def what(self) -> str:
        return f"choosing the best plan of {self.use_case}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTraining:
    """A training with a plan that was tried, ended as soon as its use of the machine shows."""

    use_case: str
    name: str
    """Of the plan, within the use case."""

    trial: TrialResult | None
    """That measured the plan; ``None`` until it is there."""

    after: str
    """Key of the trials that give it."""

    epochs: int = 1

    weight: float = 0.6

    @property
    def key(self) -> str:
        return training_key(self.use_case, self.name)

    @property
    def what(self) -> str:
        return f"training {self.use_case} with {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedSweep:
    """A sweep over batches, on one device and on all."""

    use_case: str
    batches: tuple[int, ...]
    devices: tuple[int, ...] = ()
    """Numbers of them; none for 1, 2, 4 and so on, and all, as far as a batch has samples."""

    epochs: int = 1
    weight: float = 1.5

    @property
    def key(self) -> str:
        return sweep_key(self.use_case)

    @property
    def what(self) -> str:
        batches = ", ".join(map(str, self.batches))
        return f"sweeping {self.use_case} with batches of {batches}"


Wanted = WantedTrial | WantedPlan | WantedTraining | WantedSweep


def sweep_key(use_case: str) -> str:
    """Name a sweep."""
    return f"sweep {use_case}"


def trial_key(use_case: str, strategy: str) -> str:
    """Name the trials of a strategy."""
    return f"trial {use_case} {strategy}"


def training_key(use_case: str, name: str) -> str:
    """Name a training."""
    return f"training {use_case} {name}"

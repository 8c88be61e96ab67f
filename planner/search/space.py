"""Space of the plans that may be tried: drawing one, and changing one setting of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from launch.case_facts import CaseFacts
from launch.errors import InfeasiblePlanError, InvalidPlanError
from launch.plan import Plan, Setting
from launch.strategies import load_strategy
from launch.strategies._base import PlanSource, Suggest
from probes import codec
from probes.hardware import Hardware

STRATEGY = "strategy"
STRATEGIES = "strategies"
"""Parameter of a proposed plan that makes nothing: the strategies that it was drawn from."""

PlanSources = Sequence[str] | Mapping[str, PlanSource]
"""Names of strategies, or what plans are drawn from by their strategy's name."""


@dataclass(frozen=True, slots=True)
class DrawnPlan:
    """A plan, with what was drawn to make it, and from which choices."""

    plan: Plan
    parameters: Mapping[str, Setting]
    choices: Mapping[str, tuple[Setting, ...]]


class PlanSpace:
    """The plans of several strategies on one node.

    Args:
        sources: Names of the strategies that may be used; or what plans are drawn from, by the name
            of the strategy that they have.
        case: What is trained; the user's limits are in its choices.
        node: Where.
        only: Parameters of the only plans that there are; ``None``: all that strategies draw.

    Raises:
        InfeasiblePlanError: None of the strategies can run here; the reasons are in the message.
        UnknownStrategyError: There is no strategy of one of the names.
    """

    def __init__(
        self,
        sources: PlanSources,
        case: CaseFacts,
        node: Hardware,
        only: Sequence[Mapping[str, Setting]] | None = None,
    ) -> None:
        self.case = case
        self.node = node
        self.strategies = _feasible_sources(sources, case, node)
        self._found: dict[tuple[tuple[str, Setting], ...], DrawnPlan | None] = {}
        self._plans: dict[Plan, Plan] = {}
        self._neighbours: dict[Plan, list[DrawnPlan]] = {}
        guesses = [
            {STRATEGY: name, **guess}
            for name, strategy in self.strategies.items()
            for guess in strategy.first_guesses(case, node)
        ]
        self._guessed = {name: value for guess in guesses for name, value in guess.items()}
        self.guesses = self._find_all(guesses)
        """The strategies' own guesses."""
        self.only = None if only is None else self._find_all(only)

    def draw(self, trial: Suggest) -> Plan:
        """Let a trial choose the values of a plan.

        Raises:
            InvalidPlanError: These values make no plan that may be tried here.
        """
        name = trial.suggest_categorical(STRATEGY, tuple(self.strategies))
        plan = self.strategies[name].suggest(trial, self.case, self.node)
        plan.check_fits(self.node.cpu.usable_cores)
        on_cpu = "cpu" in plan.devices
        offered = self.case.precisions if on_cpu else self.case.gpu_precisions
        if plan.precision not in offered:
            raise InvalidPlanError(f"precision={plan.precision}: not offered for this plan")
        return plan

    def find(self, parameters: Mapping[str, Setting]) -> DrawnPlan | None:
        """Make the plan that has these values, ``None`` where they make none.

        What is not named has the value of the setting of the same name of another strategy, else
        the one that is guessed.
        """
        found_as = tuple(parameters.items())
        if found_as not in self._found:
            trial = _CompletedTrial(parameters, self._guessed)
            try:
                plan = self.draw(trial)
            except InvalidPlanError:
                self._found[found_as] = None
            else:
                plan = self._plans.setdefault(plan, plan)  # one object is soon found to be equal
                self._found[found_as] = DrawnPlan(plan, trial.values, trial.choices)
        return self._found[found_as]

    def find_plan(self, plan: Plan, parameters: Mapping[str, Setting]) -> DrawnPlan | None:
        """Find what must be drawn today for a plan of an earlier trial, ``None`` where nothing is.

        A setting that there was nothing to draw for then has the value that the plan had.
        """
        fields = codec.to_builtins(plan)
        named = {**fields, **fields["options"]}
        known = {name: v for name, v in named.items() if isinstance(v, str | int | float)}
        wanted = {**known, **parameters}
        drawn = self.find(wanted)
        if drawn is None or drawn.plan == plan:
            return drawn
        open_names = [n for n in drawn.choices if not {n, _short_name(n)} & wanted.keys()]
        for name in open_names:  # such as the layout of a script, of which plans have the parts
            for value in drawn.choices[name]:
                other = self.find({**wanted, name: value})
                if other is not None and other.plan == plan:
                    return other
        return None

    def neighbours(self, drawn: DrawnPlan) -> list[DrawnPlan]:
        """Change one setting at a time.

        Where a value calls for a choice that there was not before, each of those is made: from
        decoded pictures to files with two loading processes is one change.
        """
        if drawn.plan not in self._neighbours:
            every = {other.plan: other for other in self._changed(drawn)}
            self._neighbours[drawn.plan] = [every[key] for key in every if key != drawn.plan]
        return self._neighbours[drawn.plan]

    def draw_randomly(self, generator: np.random.Generator) -> DrawnPlan | None:
        """Draw any plan; ``None`` where the values that came up make none."""
        if self.only is not None:
            return self.only[generator.integers(len(self.only))] if self.only else None
        names = tuple(self.strategies)
        parameters: dict[str, Setting] = {STRATEGY: names[generator.integers(len(names))]}
        while (drawn := self.find(parameters)) is not None:
            left = [name for name in drawn.choices if name not in parameters]
            if not left:
                return drawn
            choices = drawn.choices[left[0]]
            parameters = {**parameters, left[0]: choices[generator.integers(len(choices))]}
        return None

    def _changed(self, drawn: DrawnPlan) -> Iterator[DrawnPlan]:
        for name, choices in drawn.choices.items():
            for value in choices:
                if value == drawn.parameters[name]:
                    continue
                changed = self.find({**drawn.parameters, name: value})
                if changed is None:
                    continue
                yield changed
                if name != STRATEGY:
                    yield from self._opened(drawn, changed)

    def _opened(self, before: DrawnPlan, changed: DrawnPlan) -> Iterator[DrawnPlan]:
        for name, choices in changed.choices.items():
            if name not in before.choices:
                for value in choices:
                    other = self.find({**changed.parameters, name: value})
                    if other is not None:
                        yield other

    def _find_all(self, every: Sequence[Mapping[str, Setting]]) -> list[DrawnPlan]:
        found = [self.find(parameters) for parameters in every]
        return list({drawn.plan: drawn for drawn in found if drawn is not None}.values())


class _CompletedTrial:
    """A `Suggest` that gives known values, and guesses the rest.

    A value may be named in full, or without the strategy that names of parameters begin with.
    """

    def __init__(self, known: Mapping[str, Setting], guessed: Mapping[str, Setting]) -> None:
        self._known = known
        self._short = {_short_name(name): value for name, value in known.items()}
        self._guessed = guessed
        self.values: dict[str, Setting] = {}
        self.choices: dict[str, tuple[Setting, ...]] = {}

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """Give the known value of ``name``, else the guessed one."""
        if name in self._known and self._known[name] not in choices:
            raise InvalidPlanError(f"{name}={self._known[name]!r}: choose one of {choices}")
        wanted = (
            self._known.get(name),
            self._short.get(_short_name(name)),
            self._guessed.get(name),
        )
        value = next((one for one in wanted if one is not None and one in choices), choices[0])
        self.values[name] = value
        self.choices[name] = tuple(choices)
        return value


def _feasible_sources(
    sources: PlanSources, case: CaseFacts, node: Hardware
) -> dict[str, PlanSource]:
    """Give those whose plans can run here.

    Raises:
        InfeasiblePlanError: None can.
        UnknownStrategyError: There is no strategy of one of the names.
    """
    loaded = _load(sources)
    obstacles = find_obstacles(loaded, case, node)
    feasible = {name: source for name, source in loaded.items() if name not in obstacles}
    if not feasible:
        reasons = "; ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items())
        raise InfeasiblePlanError(f"no strategy can run here: {reasons}")
    return feasible


def find_obstacles(sources: PlanSources, case: CaseFacts, node: Hardware) -> dict[str, str]:
    """Say of those whose plans cannot run here why not.

    Raises:
        UnknownStrategyError: There is no strategy of one of the names.
    """
    obstacles = {name: one.obstacle(case, node) for name, one in _load(sources).items()}
    return {name: obstacle for name, obstacle in obstacles.items() if obstacle is not None}


def uses_gpus(sources: PlanSources, case: CaseFacts, node: Hardware) -> bool:
    """Tell whether some plan that can be tried here may run on a GPU.

    None may where CUDA hides all that the node has, or no wanted strategy has plans on one.

    Raises:
        UnknownStrategyError: There is no strategy of one of the names.
    """
    return any(one.uses_gpus(node) for one in _without_obstacle(sources, case, node))


def uses_cpu(sources: PlanSources, case: CaseFacts, node: Hardware) -> bool:
    """Tell whether some plan that can be tried here may run on a CPU.

    Raises:
        UnknownStrategyError: There is no strategy of one of the names.
    """
    return any(one.uses_cpu(node) for one in _without_obstacle(sources, case, node))


def _without_obstacle(sources: PlanSources, case: CaseFacts, node: Hardware) -> list[PlanSource]:
    loaded = _load(sources)
    obstacles = find_obstacles(loaded, case, node)
    return [one for name, one in loaded.items() if name not in obstacles]


def _load(sources: PlanSources) -> Mapping[str, PlanSource]:
    if isinstance(sources, Mapping):
        return sources
    return {name: load_strategy(name) for name in sources}


def _short_name(name: str) -> str:
    """Leave out what parameter names begin with: the strategy, and ``gpu`` where it names it."""
    return name.rpartition(".")[2]

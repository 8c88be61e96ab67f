"""Which plan to try next? Optuna asks, trials answer.

The search decides and runs nothing: whoever drives it hands each result back, and a recorded
result is as good as a fresh one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState

from launch.case_facts import CaseFacts
from launch.errors import InfeasiblePlanError, InvalidPlanError
from launch.plan import Plan, Setting
from launch.strategies import load_strategy
from launch.strategies._base import Fixed, Strategy, Suggest
from planner.result import TrialResult
from probes.hardware import Hardware

_STRATEGY = "strategy"
_MAX_REPEATS = 200
"""Draws in a row that bring nothing new, after which the space counts as exhausted."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan to try, and what was drawn to make it."""

    plan: Plan
    parameters: Mapping[str, Setting]
    _trial: optuna.Trial


class PlanSearch:
    """Proposes plans of several strategies, from what earlier ones showed.

    First come the strategies' own guesses. Then two kinds of proposal take turns: a neighbour of
    the best plan so far, one setting changed, which is what a short budget can use; and a draw of
    Optuna's TPE sampler, which is what leads out of a corner.

    Args:
        names: Strategies that may be used.
        case: What is trained.
        node: Where.
        history: Earlier trials; any order.
        seed: Of the sampler.

    Raises:
        InfeasiblePlanError: None of the strategies can run here; the reasons are in the message.
        UnknownStrategyError: There is no strategy of one of the names.
    """

    def __init__(
        self,
        names: Sequence[str],
        case: CaseFacts,
        node: Hardware,
        *,
        history: Sequence[TrialResult] = (),
        seed: int = 0,
    ) -> None:
        self._case = case
        self._node = node
        self._strategies = feasible_strategies(names, case, node)
        self._known: dict[str, float | None] = {}
        self._turns = 0
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=_sampler(seed, self._count_guesses()))
        for result in history:
            self._remember(result)
        for guess in self._guesses():
            self._enqueue(guess)

    def propose(self) -> Proposal | None:
        """Give the next plan to try, ``None`` when nothing new is left to draw.

        A plan that is known already is not proposed again; the sampler is told its time.
        """
        for _ in range(_MAX_REPEATS):
            self._enqueue_neighbour()
            trial = self._study.ask()
            try:
                plan = self._draw(trial)
            except InvalidPlanError:
                self._study.tell(trial, state=TrialState.FAIL)
                continue
            key = _key(plan)
            if key not in self._known:
                return Proposal(plan, dict(trial.params), trial)
            self._tell(trial, self._known[key])
        return None

    def tell(self, proposal: Proposal, result: TrialResult) -> None:
        """Learn what a proposed plan showed."""
        time_s = time_per_sample_s(result)
        self._known[_key(proposal.plan)] = time_s
        self._tell(proposal._trial, time_s)

    def _tell(self, trial: optuna.Trial, time_s: float | None) -> None:
        if time_s is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, time_s)

    def _draw(self, trial: Suggest) -> Plan:
        name = trial.suggest_categorical(_STRATEGY, tuple(self._strategies))
        plan = self._strategies[name].suggest(trial, self._case, self._node)
        plan.check_fits(self._node.cpu.usable_cores)
        return plan

    def _remember(self, result: TrialResult) -> None:
        """Take in an earlier trial, where today's search space still holds it."""
        time_s = time_per_sample_s(result)
        self._known[_key(result.plan)] = time_s
        drawn = _Recorder(result.parameters)
        try:
            self._draw(drawn)
        except (KeyError, ValueError, InvalidPlanError):
            return
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.FAIL if time_s is None else TrialState.COMPLETE,
                value=time_s,
                params=dict(result.parameters),
                distributions=drawn.distributions,
            )
        )

    def _count_guesses(self) -> int:
        return sum(1 for _ in self._guesses())

    def _guesses(self) -> Iterator[dict[str, Setting]]:
        """Give the strategies' guesses, each one's best first, those with most threads ahead."""
        columns = []
        for name, strategy in self._strategies.items():
            guesses = strategy.first_guesses(self._case, self._node)
            columns.append([{_STRATEGY: name, **guess} for guess in guesses])
        rows = chain.from_iterable(zip_longest(*columns))
        yield from sorted((g for g in rows if g), key=lambda guess: -self._threads_of(guess))

    def _threads_of(self, guess: Mapping[str, Setting]) -> int:
        try:
            return self._draw(Fixed(guess)).threads
        except InvalidPlanError:
            return 0

    def _enqueue(self, parameters: Mapping[str, Setting]) -> bool:
        """Let Optuna give these next, unless they make no plan or a known one."""
        try:
            plan = self._draw(Fixed(parameters))
        except (KeyError, ValueError, InvalidPlanError):
            return False
        if _key(plan) in self._known:
            return False
        self._study.enqueue_trial(dict(parameters), skip_if_exists=True)
        return True

    def _enqueue_neighbour(self) -> None:
        if any(t.state == TrialState.WAITING for t in self._study.get_trials(deepcopy=False)):
            return
        self._turns += 1
        done = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        if self._turns % 2 == 0 or not done:
            return
        best = min(done, key=lambda trial: trial.value or 0.0)
        for neighbour in _neighbours(best.params, best.distributions):
            if self._enqueue(neighbour):
                return


class _Recorder(Fixed):
    """Draws chosen values and notes what they were chosen from."""

    def __init__(self, values: Mapping[str, Setting]) -> None:
        super().__init__(values)
        self.distributions: dict[str, BaseDistribution] = {}

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        value = super().suggest_categorical(name, choices)
        self.distributions[name] = CategoricalDistribution(choices)
        return value


def feasible_strategies(
    names: Sequence[str], case: CaseFacts, node: Hardware
) -> dict[str, Strategy]:
    """Load the strategies that can run here.

    Raises:
        InfeasiblePlanError: None can.
        UnknownStrategyError: There is no strategy of one of the names.
    """
    strategies = {name: load_strategy(name) for name in names}
    obstacles = {name: s.obstacle(case, node) for name, s in strategies.items()}
    feasible = {name: s for name, s in strategies.items() if obstacles[name] is None}
    if not feasible:
        reasons = "; ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items())
        raise InfeasiblePlanError(f"no strategy can run here: {reasons}")
    return feasible


def time_per_sample_s(result: TrialResult) -> float | None:
    """Give what the search minimises, ``None`` where the trial shows no speed."""
    throughput = result.throughput_samples_per_s()
    return None if throughput is None else 1 / throughput.median


def _sampler(seed: int, startup_trials: int) -> optuna.samplers.BaseSampler:
    with warnings.catch_warnings():  # both settings count as experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            multivariate=True, group=True, n_startup_trials=startup_trials, seed=seed
        )


def _neighbours(
    parameters: Mapping[str, Any], distributions: Mapping[str, BaseDistribution]
) -> Iterator[dict[str, Setting]]:
    """Change one setting: of numbers to the next larger or smaller, else to any other choice."""
    for name, distribution in distributions.items():
        if name == _STRATEGY or not isinstance(distribution, CategoricalDistribution):
            continue
        choices = list(distribution.choices)
        place = choices.index(parameters[name])
        ordered = all(isinstance(choice, int) for choice in choices)
        near = (place + 1, place - 1) if ordered else range(len(choices))
        for other in near:
            if other != place and 0 <= other < len(choices):
                yield {**parameters, name: choices[other]}  # type: ignore[dict-item]


def _key(plan: Plan) -> str:
    return repr(sorted(plan.to_json().items(), key=lambda item: item[0]))

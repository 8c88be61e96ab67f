"""Search: Optuna proposes plans, trials measure them.

The search decides and runs nothing: whoever drives it hands each result back, and a recorded
result is as good as a fresh one.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, zip_longest
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import TrialState

from launch.case_facts import CaseFacts
from launch.errors import InfeasiblePlanError, InvalidPlanError
from launch.plan import Plan, Setting
from launch.strategies import load_strategy
from launch.strategies._base import FixedTrial, Strategy, Suggest
from planner.search.neighbours import STRATEGY, neighbours
from planner.trials.result import TrialResult
from probes import codec
from probes.hardware import Hardware

_MAX_REPEATS = 200
"""Draws in a row that bring nothing new, after which the space counts as exhausted."""

_NEIGHBOURS_PER_DRAW = 3

_NEIGHBOURS_AT_FIRST = 8
"""As many as there are settings that may matter: of so large a space the sampler knows nothing
before."""

_DROP_FACTOR = 1.25
"""Time of a strategy's best plan / time of the best, above which the strategy has lost: no change
of one setting makes up for that."""

_SKIP_FACTOR = 1.75
"""The same where only a plan with every setting at its default is known, the baseline: what all
settings together gain."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan to try, and what was drawn to make it."""

    plan: Plan
    parameters: Mapping[str, Setting]
    _trial: optuna.Trial


class PlanSearch:
    """Proposes plans of several strategies, from what earlier ones showed.

    First come the strategies' own guesses, those that use most of the machine ahead. Then two kinds
    of proposal take turns: neighbours of the best plan so far, one setting changed, which is what a
    short budget can use; and a draw of Optuna's TPE sampler, which is what leads out of a corner,
    from the strategies that have not clearly lost.

    Args:
        names: Strategies that may be used.
        case: What is trained.
        node: Where.
        history: Earlier trials; any order.
        seed: Of the sampler.
        training_samples: Samples of the training over which a plan's compile time is charged.
        allows: Tells which plans may be proposed.

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
        training_samples: float = math.inf,
        allows: Callable[[Plan], bool] = lambda _: True,
    ) -> None:
        self._case = case
        self._node = node
        self._over_samples = training_samples
        self._allows = allows
        self._strategies = feasible_strategies(names, case, node)
        self._known: dict[str, float | None] = {}
        self._num_proposals = 0
        self._names = cycle(self._strategies)
        self._best_s: dict[str, float] = {}
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._study = optuna.create_study(sampler=_sampler(seed, self._count_guesses()))
        for result in history:
            self._add_history(result)
        self._guess_queue = list(self._guesses())

    def propose(self) -> Proposal | None:
        """Give the next plan to try, ``None`` when nothing new is left to draw.

        A plan that is known already is not proposed again; the sampler is told its time.
        """
        for repeat in range(_MAX_REPEATS):
            self._enqueue_next(include_dropped=repeat > _MAX_REPEATS // 2)
            trial = self._study.ask()
            try:
                plan = self._draw(trial)
            except InvalidPlanError:
                self._study.tell(trial, state=TrialState.FAIL)
                continue
            key = _key(plan)
            if key not in self._known:
                self._known[key] = None  # while it runs it is not proposed again
                return Proposal(plan, dict(trial.params), trial)
            self._tell(trial, self._known[key])
        return None

    def tell(self, proposal: Proposal, result: TrialResult) -> None:
        """Learn what a proposed plan showed."""
        time_s = time_per_sample_s(result, self._over_samples)
        self._record(proposal.plan, time_s)
        self._tell(proposal._trial, time_s)

    def _tell(self, trial: optuna.Trial, time_s: float | None) -> None:
        if time_s is None:
            self._study.tell(trial, state=TrialState.FAIL)
        else:
            self._study.tell(trial, time_s)

    def _record(self, plan: Plan, time_s: float | None) -> None:
        self._known[_key(plan)] = time_s
        if time_s is not None:
            name = plan.strategy
            self._best_s[name] = min(time_s, self._best_s.get(name, math.inf))

    def _draw(self, trial: Suggest) -> Plan:
        name = trial.suggest_categorical(STRATEGY, tuple(self._strategies))
        plan = self._strategies[name].suggest(trial, self._case, self._node)
        plan.check_fits(self._node.cpu.usable_cores)
        on_cpu = "cpu" in plan.devices
        offered = self._case.precisions if on_cpu else self._case.gpu_precisions
        if plan.precision not in offered or not self._allows(plan):
            raise InvalidPlanError(f"precision={plan.precision}: not offered for this plan")
        return plan

    def _add_history(self, result: TrialResult) -> None:
        """Take in an earlier trial, where today's search space still holds it."""
        time_s = time_per_sample_s(result, self._over_samples)
        self._record(result.plan, time_s)
        if not result.parameters:
            return
        drawn = _ReplayedTrial(result)
        try:
            plan = self._draw(drawn)
        except (KeyError, ValueError, InvalidPlanError):
            return
        if _key(plan) != _key(result.plan):
            return
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.FAIL if time_s is None else TrialState.COMPLETE,
                value=time_s,
                params=drawn.values,
                distributions=drawn.distributions,
            )
        )

    def _count_guesses(self) -> int:
        return sum(1 for _ in self._guesses())

    def _guesses(self) -> Iterator[dict[str, Setting]]:
        """Give the strategies' guesses, each one's best first, the most promising ahead."""
        columns = [self._guesses_of(name) for name in self._strategies]
        rows = chain.from_iterable(zip_longest(*columns))
        yield from sorted((guess for guess in rows if guess), key=self._guess_order)

    def _guesses_of(self, name: str) -> list[dict[str, Setting]]:
        guesses = self._strategies[name].first_guesses(self._case, self._node)
        return [{STRATEGY: name, **guess} for guess in guesses]

    def _guess_order(self, guess: Mapping[str, Setting]) -> tuple[int, int, float]:
        """Order guesses: by GPUs, by threads, and whole models before stages that wait in turn.

        What comes later is held against the best until then and ends early where it loses.
        """
        try:
            plan = self._draw(FixedTrial(guess))
        except (KeyError, ValueError, InvalidPlanError):
            return 0, 0, 0.0
        gpus = len(set(plan.devices) - {"cpu"})
        return -gpus, -plan.threads, max(1.0, plan.processes / plan.replicas)

    def _enqueue(self, parameters: Mapping[str, Setting]) -> bool:
        """Let Optuna give these next, unless they make no plan or a known one."""
        try:
            plan = self._draw(FixedTrial(parameters))
        except (KeyError, ValueError, InvalidPlanError):
            return False
        if _key(plan) in self._known:
            return False
        self._study.enqueue_trial(dict(parameters), skip_if_exists=True)
        return True

    def _enqueue_next(self, *, include_dropped: bool) -> None:
        """Let Optuna give a neighbour of the best plan next, or a draw of a strategy."""
        if any(t.state == TrialState.WAITING for t in self._study.get_trials(deepcopy=False)):
            return
        while self._guess_queue:
            guess = self._guess_queue.pop(0)
            if not self._is_too_slow(guess) and self._enqueue(guess):
                return
        self._num_proposals += 1
        done = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        is_early = self._num_proposals <= _NEIGHBOURS_AT_FIRST
        if done and (is_early or self._num_proposals % (_NEIGHBOURS_PER_DRAW + 1)):
            best = min(done, key=lambda trial: trial.value or 0.0)
            guesses = self._guesses_of(best.params[STRATEGY])
            known = {name: value for guess in guesses for name, value in guess.items()}
            for neighbour in neighbours(best, done):
                # A changed setting may call for others, which the guesses have.
                if self._enqueue({**known, **neighbour}):
                    return
        if not include_dropped:
            name = next(name for name in self._names if not self._is_dropped(name, _DROP_FACTOR))
            self._study.enqueue_trial({STRATEGY: name})

    def _is_too_slow(self, guess: Mapping[str, Setting]) -> bool:
        """Tell whether a guess for the CPU is of a strategy whose plain form is far too slow."""
        on_gpu = self._guess_order(guess)[0] < 0
        return not on_gpu and self._is_dropped(str(guess[STRATEGY]), _SKIP_FACTOR)

    def _is_dropped(self, name: str, factor: float) -> bool:
        """Tell whether the best plan of a strategy takes so many times as long as the best."""
        fastest_s = min(self._best_s.values(), default=math.inf)
        return name in self._best_s and self._best_s[name] > factor * fastest_s


class _ReplayedTrial(FixedTrial):
    """Draws what an earlier trial drew and notes what it was chosen from.

    What there was nothing to draw for then, has the value that the trial's plan had.
    """

    def __init__(self, result: TrialResult) -> None:
        plan = codec.to_builtins(result.plan)
        self._plan = {**plan, **plan["options"]}
        super().__init__(result.parameters)
        self.values: dict[str, Setting] = {}
        self.distributions: dict[str, BaseDistribution] = {}

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        if name in self._values:
            value = super().suggest_categorical(name, choices)
        else:
            value = self._plan[name.rpartition(".")[2]]
            if value not in choices:
                raise ValueError(f"{name}={value!r}: not one of {choices}")
        self.values[name] = value
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
    obstacles = find_obstacles(names, case, node)
    feasible = {name: load_strategy(name) for name in names if name not in obstacles}
    if not feasible:
        reasons = "; ".join(f"{name}: {obstacle}" for name, obstacle in obstacles.items())
        raise InfeasiblePlanError(f"no strategy can run here: {reasons}")
    return feasible


def find_obstacles(names: Sequence[str], case: CaseFacts, node: Hardware) -> dict[str, str]:
    """Say of the strategies that cannot run here why not.

    Raises:
        UnknownStrategyError: There is no strategy of one of the names.
    """
    obstacles = {name: load_strategy(name).obstacle(case, node) for name in names}
    return {name: obstacle for name, obstacle in obstacles.items() if obstacle is not None}


def time_per_sample_s(result: TrialResult, training_samples: float = math.inf) -> float | None:
    """Give what the search minimises, ``None`` where the trial shows no speed.

    Args:
        result: What a trial showed.
        training_samples: Samples of the training over which its compile time is charged.
    """
    throughput = result.throughput_samples_per_s(training_samples)
    return None if throughput is None else 1 / throughput.median


def _sampler(seed: int, startup_trials: int) -> optuna.samplers.BaseSampler:
    with warnings.catch_warnings():  # both settings count as experimental
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            multivariate=True, group=True, n_startup_trials=startup_trials, seed=seed
        )


def _key(plan: Plan) -> str:
    return repr(sorted(codec.to_builtins(plan).items(), key=lambda item: item[0]))

"""Plans of scripts: what is drawn, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from launch.case_facts import CaseFacts
from launch.errors import ScriptError
from launch.plan import Plan, Setting
from launch.process_environment.openmp import WAIT_POLICIES, WAIT_POLICY
from launch.scripts.environment import (
    NO_PYTHON,
    OWN_SETTINGS,
    PATCH_PREFIX,
    PATCHES,
    placeholder_values,
)
from launch.scripts.patches import PERSISTENCE, PINNING
from launch.scripts.patches import WORKERS as PATCHED_WORKERS
from launch.scripts.program import BATCH, PROCESSES, THREADS, WORKERS, Program, thread_choices
from launch.strategies._base import PlanSource, Suggest
from planner.scripts.naming import STEP_REGEX, STRATEGY, WHOLE_RUNS
from planner.search.space import PlanSources
from planner.trials.result import TrialResult
from probes.hardware import Hardware

T = TypeVar("T")

_OWN = "own"
"""Value of a patch that changes nothing."""

_FIELDS = (WORKERS, THREADS, PROCESSES)
"""Placeholders whose values are fields of a plan; those of the others are options."""

_LAYOUT = "layout"
"""Processes with threads of each, which are drawn together."""

_TAKEN = {
    *(setting.name for setting in fields(Plan)),
    *(_LAYOUT, OWN_SETTINGS, NO_PYTHON, WHOLE_RUNS, STEP_REGEX, WAIT_POLICY),
}
"""Names of what plans of scripts have beside the values of placeholders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptPlans(PlanSource):
    """Plans of one script on one node."""

    program: Program

    samples: int
    """Of a step with the user's own values, as they were seen: of one process, or of all where
    they split the batch."""

    processes: int
    """That train with the user's own values."""

    splits_batch: bool = False
    """Whether the batch is that of all processes together, each of which takes its part."""

    counts_runs: bool = False
    """Whether a step is a whole run, and so one sample, whatever its batch and processes are."""

    cores: int
    allocators: tuple[str, ...] = ("default", "retain")
    patches: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)
    """Changes of the script that the user has asked for, with their values."""

    steps: Mapping[str, Setting] = field(default_factory=dict)
    """Options that say what a step is, where that is not one of its optimizer."""

    defaults_name: str = "the script as it is"

    @property
    def defaults_plan(self) -> Plan:
        """The script as it is: nothing of its environment is set."""
        own = self.program.own_values
        threads = own.get(THREADS, max(1, self.cores // self.processes))
        return Plan(
            strategy=STRATEGY,
            node_batch=self._over_all(self.samples, self.processes),
            processes=self.processes,
            threads_per_process=int(threads),
            loader_workers=int(own.get(WORKERS, 0)),
            options={OWN_SETTINGS: True, **self.steps, **self._options(own), **self._own_batch},
        )

    def obstacle(self, case: CaseFacts, node: Hardware) -> str | None:
        """Give none: a script that does not run was refused before."""
        return None

    def uses_gpus(self, node: Hardware) -> bool:
        """Tell whether the script may use a GPU: none of its plans names one."""
        return may_use_gpu(node)

    def suggest(self, trial: Suggest, case: CaseFacts, node: Hardware) -> Plan:
        """Draw what the environment sets, and the value of each placeholder."""

        def draw(name: str, choices: Sequence[Setting]) -> Setting:
            value: Setting = trial.suggest_categorical(f"{STRATEGY}.{name}", tuple(choices))
            return value

        choices = self.program.choices
        layout = draw(_LAYOUT, tuple(f"{p}x{t}" for p, t in self._layouts()))
        processes, threads = map(int, str(layout).split("x"))
        batch = draw("node_batch", self._batches())
        workers = draw("loader_workers", choices.get(WORKERS, (0,)))
        allocator = draw("allocator", self.allocators)
        waiting = draw(WAIT_POLICY, WAIT_POLICIES)
        others = {name: draw(name, choices[name]) for name in self._options(choices)}
        if self._batch_is_size:
            others[BATCH] = choices[BATCH][self._batches().index(int(batch))]
        if waiting != WAIT_POLICIES[0]:
            others[WAIT_POLICY] = waiting
        loaders = workers
        for name, values in self.patches.items():
            if name == PERSISTENCE and not loaders:  # there is nothing to persist
                continue
            value = draw(f"{PATCH_PREFIX}{name}", (_OWN, *values))
            if value != _OWN:
                others[f"{PATCH_PREFIX}{name}"] = value
                loaders = value if name == PATCHED_WORKERS else loaders
        return Plan(
            strategy=STRATEGY,
            processes=processes,
            threads_per_process=threads,
            node_batch=self._over_all(int(batch), processes),
            loader_workers=int(workers),
            allocator=str(allocator),
            options={**self.steps, **others},
        )

    def first_guesses(self, case: CaseFacts, node: Hardware) -> list[dict[str, Setting]]:
        """Name the user's own values with memory that is kept, once for each count of processes."""
        own = self.program.own_values
        guess: dict[str, Setting] = {
            "node_batch": self.samples,
            "loader_workers": own.get(WORKERS, 0),
            "allocator": "retain",
            WAIT_POLICY: WAIT_POLICIES[0],
            **self._options(own),
            **{f"{PATCH_PREFIX}{name}": _OWN for name in self.patches},
        }
        first: dict[int, int] = {}
        for processes, threads in self._layouts():
            first.setdefault(processes, threads)
        guesses = [{_LAYOUT: f"{p}x{t}", **guess} for p, t in first.items()]
        return [{f"{STRATEGY}.{name}": value for name, value in one.items()} for one in guesses]

    @property
    def baseline_plan(self) -> Plan | None:
        """Give none: what one core would take, nobody who has a script asks."""
        return None

    def sources(self, names: Sequence[str] | None) -> PlanSources:
        """Give this object: a script has one kind of plans."""
        return {STRATEGY: self}

    def at_own_batch(self, plan: Plan) -> Plan | None:
        """Give a plan with the user's own batch."""
        options = {**plan.options, **self._own_batch}
        batch = self._over_all(self.samples, plan.processes)
        return replace(plan, node_batch=batch, options=options)

    def shares(self, plan: Plan, results: Sequence[TrialResult]) -> list[Plan]:
        """Give none: a script has no share of a job with other nodes."""
        return []

    def _layouts(self) -> list[tuple[int, int]]:
        """List processes with threads of each that fit, the user's own or the most threads first.

        They are drawn together: from all threads in one process, no change of one number alone
        leads to two processes.
        """
        pairs = self._pairs()
        return [(p, t) for p, t in pairs if p * t <= self.cores] or pairs

    @property
    def left_out(self) -> list[tuple[str, int]]:
        """Values of placeholders that fit the cores with none of the others: never tried."""
        kept, pairs = self._layouts(), self._pairs()
        return [
            (name, value)
            for place, name in enumerate((PROCESSES, THREADS))
            for value in dict.fromkeys(pair[place] for pair in pairs)
            if value not in {pair[place] for pair in kept}
        ]

    def _pairs(self) -> list[tuple[int, int]]:
        choices = self.program.choices
        return [
            (processes, int(threads))
            for processes in map(int, choices.get(PROCESSES, (self.processes,)))
            for threads in choices.get(THREADS, thread_choices(max(1, self.cores // processes)))
        ]

    def _over_all(self, samples: int, processes: int) -> int:
        """Give the samples of a step of all processes."""
        return samples if self.splits_batch or self.counts_runs else samples * processes

    @property
    def _batch_is_size(self) -> bool:
        """Whether the batch says how many samples a step has."""
        return BATCH in self.program.choices and not self.counts_runs

    @property
    def _own_batch(self) -> dict[str, Setting]:
        own = self.program.own_values
        return {BATCH: own[BATCH]} if BATCH in own else {}

    def _batches(self) -> tuple[int, ...]:
        """Give `samples` for each choice of the batch."""
        if not self._batch_is_size:
            return (self.samples,)
        batches = [int(value) for value in self.program.choices[BATCH]]
        return tuple(self.samples * batch // batches[0] for batch in batches)

    def _options(self, values: Mapping[str, T]) -> dict[str, T]:
        """Give what is drawn as an option, and stands for no field of a plan."""
        others = (*_FIELDS, BATCH) if self._batch_is_size else _FIELDS
        return {name: value for name, value in values.items() if name not in others}


def check_placeholders(program: Program) -> None:
    """Check that no placeholder has the name of a setting, whose value it would be taken for.

    Raises:
        ScriptError: One has.
    """
    for name in program.placeholders:
        if name not in _FIELDS and (name in _TAKEN or name.startswith(PATCH_PREFIX)):
            raise ScriptError(
                f"placeholder {{{name}}}: plans have a setting of that name: give it another one, "
                f"such as {{my_{name}}}"
            )


def foreign_values(program: Program, plan: Plan) -> dict[str, Setting]:
    """Give the values of placeholders with which a plan trains something else than the user's own.

    The first losses of a patched script are held against those of the script as it is only where
    there are none. Threads and loader workers change how fast a script is, and no loss.
    """
    own = program.own_values
    return {
        name: value
        for name, value in placeholder_values(program, plan).items()
        if name not in (WORKERS, THREADS) and value != own[name]
    }


def may_use_gpu(node: Hardware) -> bool:
    """Tell whether CUDA shows a script a GPU, or a part of one, which plans of ours never use."""
    return any(gpu.cuda_index is not None or gpu.mig_enabled for gpu in node.gpus)


def find_patches(
    parts: Sequence[str], program: Program, *, has_gpu: bool
) -> dict[str, tuple[Setting, ...]]:
    """Give the patches that a search varies, with their values.

    Args:
        parts: Of the script, whose patches the user has asked for.
        program: What its placeholders vary is not patched.
        has_gpu: Whether pinned memory can be of use.
    """
    found = {name: values for part in parts for name, values in PATCHES[part].items()}
    if WORKERS in program.placeholders:
        found.pop(PATCHED_WORKERS, None)
    if not has_gpu:
        found.pop(PINNING, None)
    return found

"""Environment of a script: what a plan sets around a command, none of whose words it changes."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from launch.errors import InvalidPlanError
from launch.plan import Plan, Setting
from launch.process_environment.allocators import (
    allocator_environment,
    is_preloaded,
    plain_environment,
)
from launch.process_environment.openmp import wait_environment, wait_policy
from launch.scripts import patches
from launch.scripts.program import PROCESSES, THREADS, WORKERS, Program
from launch.scripts.shim import VARIABLE
from probes.hardware import Hardware

OWN_SETTINGS = "own_settings"
"""Option of a plan that sets nothing: the command as the user runs it now."""

NO_PYTHON = "no_python"
"""Option of a plan whose program is started as it is: nothing of ours stands in front of it."""

PATCH_PREFIX = "patch_"
"""Begins the options that change the script: it is no longer the user's."""

PATCHES: Mapping[str, Mapping[str, tuple[Setting, ...]]] = {
    "loader": {
        patches.WORKERS: (0, 1, 2, 4),
        patches.PINNING: (True,),
        patches.PERSISTENCE: (True,),
    },
    "model": {
        patches.CHANNELS_LAST: (True,),
        patches.AUTOCAST: ("bf16",),
        patches.COMPILE: (True,),
    },
}
"""Names of patches, without the prefix, and their values, by what they change.

What is not among the options of a plan is left to the script.
"""

SHIM = Path(__file__).with_name("shim.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStart:
    """What starts a script."""

    command: tuple[str, ...]
    """As the user would write it."""

    started_command: tuple[str, ...]
    """What is started: the same, with the shim in front where it watches or changes the script."""

    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables beside those that are there, as the user would set them."""

    started_environment: Mapping[str, str] = field(default_factory=dict)
    """The same, with what the shim is told."""

    cores: tuple[int, ...] = ()
    """Logical cores that all its processes share; empty: those that it has."""


def make_start(
    program: Program,
    plan: Plan,
    node: Hardware,
    environment: Mapping[str, str] = os.environ,
    *,
    watch: Mapping[str, object] | None = None,
) -> ScriptStart:
    """Make the start of a program with a plan, as a user would write it.

    Args:
        program: Of the user's.
        plan: With an option for each placeholder.
        node: This machine.
        environment: Variables that are there.
        watch: What the shim has to know of who watches the script; ``None`` or empty: nobody does.

    Raises:
        InvalidPlanError: The node lacks what the plan asks for, or a patch is unknown.
        ScriptError: The plan leaves a placeholder without a value.
    """
    command = program.fill(placeholder_values(program, plan))
    check_options(plan)
    changes = patches_of(plan)
    settings = {**(watch or {}), **({"patches": changes} if changes else {})}
    if plan.options.get(NO_PYTHON):  # also where a word of it looks like Python's
        settings = {}
    started = program.with_shim(command, SHIM) if settings else command
    if changes and started == command:
        raise InvalidPlanError(
            f"{PATCH_PREFIX}{min(changes)}: only a Python program can be patched"
        )
    variables = {VARIABLE: json.dumps(settings)} if started != command else {}
    if plan.options.get(OWN_SETTINGS):
        return ScriptStart(command=command, started_command=started, started_environment=variables)
    plan.check_fits(node.cpu.usable_cores)
    cores = node.cpu.choose_cores(plan.threads)
    own = script_environment(plan, environment)
    return ScriptStart(
        command=command,
        started_command=started,
        environment=own,
        started_environment={**own, **variables},
        cores=cores if len(cores) < node.cpu.usable_cores else (),
    )


def placeholder_values(program: Program, plan: Plan) -> dict[str, Setting]:
    """Give the value of each placeholder in a plan."""
    fields = {
        PROCESSES: plan.processes,
        THREADS: plan.threads_per_process,
        WORKERS: plan.loader_workers,
    }
    known: dict[str, Setting] = {**fields, **plan.options}
    return {name: known[name] for name in program.placeholders if name in known}


def script_environment(plan: Plan, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Give the variables that a plan sets.

    Raises:
        InvalidPlanError: The allocator is not known here.
    """
    found = plain_script_environment(plan)
    if is_preloaded(plan.allocator):  # by the path that its library has here
        found |= allocator_environment(plan.allocator, environment)
    return found


def plain_script_environment(plan: Plan) -> dict[str, str]:
    """Give the same for a file that runs elsewhere: a library is named without its folder."""
    threads = str(plan.threads_per_process)
    return {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        **({"CUDA_VISIBLE_DEVICES": ",".join(plan.gpus)} if plan.gpus else {}),
        **wait_environment(wait_policy(plan)),
        **plain_environment(plan.allocator),
    }


def patches_of(plan: Plan) -> dict[str, Setting]:
    """Give what a plan changes in the script itself, by name without its prefix."""
    return {
        name.removeprefix(PATCH_PREFIX): value
        for name, value in plan.options.items()
        if name.startswith(PATCH_PREFIX)
    }


def check_options(plan: Plan) -> None:
    """Check how threads wait under a plan, and what it changes in the script itself.

    Raises:
        InvalidPlanError: Such a way of waiting, or such a patch, is unknown.
    """
    wait_policy(plan)
    known = {name: values for part in PATCHES.values() for name, values in part.items()}
    for name, value in patches_of(plan).items():
        option = f"{PATCH_PREFIX}{name}"
        if name not in known:
            names = ", ".join(f"{PATCH_PREFIX}{one}" for one in known)
            raise InvalidPlanError(f"{option}={value}: choose one of {names}")
        is_count = name == patches.WORKERS and type(value) is int and value >= 0
        if not is_count and (type(value), value) not in [(type(v), v) for v in known[name]]:
            choices = ", ".join(map(str, known[name]))
            raise InvalidPlanError(f"{option}={value}: choose one of {choices}")

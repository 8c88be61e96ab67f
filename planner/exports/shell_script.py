"""Shell script of a plan: variables, and the command that starts a script of one's own."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from launch.plan import Plan
from launch.strategies.gpu_data import BENCHMARK
from planner.exports.head import head_lines, settings_left
from planner.exports.pinning import PIN_VARIABLE, pinned_start
from planner.plans.plain_commands import plain_environment, torchrun_command
from planner.plans.stored_plan import StoredPlan


def shell_script(stored: StoredPlan, stale_reasons: Sequence[str]) -> str:
    """Give a script for ``sh`` that runs a script of one's own by torchrun."""
    plan = stored.plan
    lines = [
        "#!/bin/sh",
        *(f"# {line}" for line in head_lines(stored, stale_reasons)),
        "# It runs without ddlplan:  sh plan.sh YOUR_SCRIPT.py ARGUMENTS",
        *notes(plan),
        "set -eu",
        'if [ "$#" -eq 0 ]; then',
        '\techo "usage: sh $0 YOUR_SCRIPT.py [ARGUMENTS]" >&2',
        "\texit 2",
        "fi",
        *exports(plain_environment(plan)),
        *exports(script_settings(plan)),
        *pin_lines(plan.processes, plan.threads_per_process, is_script=True),
        # Behind -- it takes -c for a script: its own Python runs that, not the first of PATH.
        f'exec {torchrun_command(plan)} -- -c "${PIN_VARIABLE}" "$@"',
    ]
    return "\n".join(lines) + "\n"


def script_settings(plan: Plan) -> dict[str, str]:
    """Give the settings that only a training script can apply, as variables for it to read."""
    return {
        "PLAN_NODE_BATCH": str(plan.node_batch),
        "PLAN_MICRO_BATCHES": str(plan.micro_batches),
        "PLAN_LOADER_WORKERS": str(plan.loader_workers),
        "PLAN_MEMORY_FORMAT": plan.memory_format,
        "PLAN_PRECISION": plan.precision,
        "PLAN_FUSED_OPTIMIZER": str(int(plan.fused_optimizer)),
        "PLAN_COMPILE": str(int(plan.compile)),
        "PLAN_CUDNN_BENCHMARK": str(int(bool(plan.options.get(BENCHMARK)))),
        "PLAN_LR_SCALING": plan.lr_scaling,
    }


def notes(plan: Plan) -> Iterator[str]:
    """Say in comments what is left to the user's script."""
    yield "# What no variable can set, your script reads from PLAN_... and applies."
    if left := settings_left(plan):
        yield f"# Not part of it, as only ddlplan does it: {'; '.join(left)}."


def pin_lines(processes: int, threads: int, *, is_script: bool = False) -> Iterator[str]:
    """Give lines that set the variable with the program that pins a process."""
    yield "# It pins its process, with all that this starts, then becomes the program behind it."
    yield f"{PIN_VARIABLE}={shlex.quote(pinned_start(processes, threads, is_script=is_script))}"


def exports(variables: Mapping[str, str]) -> Iterator[str]:
    """Give lines that export variables. What is preloaded already stays so."""
    for name, value in variables.items():
        more = "${LD_PRELOAD:+:$LD_PRELOAD}" if name == "LD_PRELOAD" else ""
        yield f"export {name}={shlex.quote(value)}{more}"

"""Options of a supervised command: the only words that reach its command line."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.errors import UsageError
from planner.records.job_record import JobKind

_WHERE = {"hosts": str, "ssh_config": str, "mpirun": str, "allow_run_as_root": bool}
_WHAT = {"use_case": str, "set": list, "data": str, "seed": int}

OPTIONS: Mapping[JobKind, Mapping[str, type]] = {
    JobKind.TUNE: {
        **_WHAT,
        **_WHERE,
        "epochs": int,
        "budget": str,
        "trials": int,
        "strategies": str,
        "batch_size": int,
        "effective_batch": int,
        "max_batch": int,
        "precision": str,
        "objective": str,
        "lr_scaling": str,
        "target": float,
        "target_accuracy": float,
        "no_cache": bool,
        "fresh": bool,
        "verbose": bool,
        "no_wait": bool,
    },
    JobKind.LAUNCH: {
        **_WHAT,
        **_WHERE,
        "epochs": int,
        "plan": int,
        "global_batch": int,
        "effective_batch": int,
        "lr_scaling": str,
        "allow_stale": bool,
        "checkpoint": str,
        "checkpoint_every": str,
        "resume": bool,
        "max_restarts": int,
        "hang_timeout": str,
        "allow_nan": bool,
        "keep_best": bool,
        "onnx": str,
        "tensorboard": str,
        "no_noise_scale": bool,
        "all_hosts": bool,
        "keep_shares": bool,
        "wire": str,
        "all_reduce": str,
    },
    JobKind.SWEEP: {
        **_WHAT,
        "batches": str,
        "plans": str,
        "devices": str,
        "epochs": int,
        "fresh": bool,
        "allow_stale": bool,
        "html": str,
        "no_wait": bool,
    },
    JobKind.PROBE: {**_WHERE, "data": str, "quick": bool, "no_wait": bool},
    JobKind.DOCTOR: {**_WHERE, "use_case": str, "data": str},
}
"""Long names with underscores, and the kind of value of each; a list gives the option repeatedly.

What is not in here, above all ``--db`` and ``--json``, a request cannot say.
"""

NOT_FOR_JOBS = (
    *("detach", "dry_run", "json", "csv", "replay"),
    *("choices", "step_regex", "in_place", "no_python", "patch"),  # of scripts, which are no jobs
)
"""Options of these commands that a job cannot have. ``--db`` it is told in any case."""

MOST_CHARACTERS = 4096
"""Of one value."""


def make_arguments(kind: JobKind, request: Mapping[str, Any]) -> list[str]:
    """Give the arguments of a command, each option with its value in one word.

    In one word, so that a value with a leading hyphen is no option.

    Raises:
        UsageError: An option is not listed, or its value is of another kind.
    """
    words = [str(kind)]
    for name, value in request.items():
        wanted = OPTIONS[kind].get(name)
        if wanted is None:
            known = ", ".join(sorted(OPTIONS[kind]))
            raise UsageError(f"{kind} has no option {name!r} for a job: {known}")
        option = "--" + name.replace("_", "-")
        if wanted is bool:
            _check(name, value, isinstance(value, bool), "true or false")
            words += [option] if value else []
        elif wanted is int:
            is_int = isinstance(value, int) and not isinstance(value, bool)
            _check(name, value, is_int, "a whole number")
            words.append(f"{option}={value}")
        elif wanted is float:
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            _check(name, value, is_number and math.isfinite(value), "a number")
            words.append(f"{option}={value}")
        else:
            values = value if wanted is list else [value]
            _check(name, value, isinstance(values, list | tuple), "a list of texts")
            for one in values:
                _check(name, one, isinstance(one, str) and bool(one), "a text")
                is_plain = len(one) <= MOST_CHARACTERS and one.isprintable()
                _check(name, one, is_plain, f"one line of at most {MOST_CHARACTERS} characters")
                words.append(f"{option}={one}")
    return words


def _check(name: str, value: object, is_right: bool, expected: str) -> None:
    if not is_right:
        raise UsageError(f"option {name!r} of a job is {ascii(value)[:80]}: expected {expected}")

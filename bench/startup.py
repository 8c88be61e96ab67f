"""Time of commands that train nothing, beside the imports that they cannot do without."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from _block import BenchError, Ddlplan, Result, begin, make_parser, mean_difference, run_bench

from probes.timing import Measurement

_PLANS = 8

_FLOORS = {
    "ddlplan --help": ("import typer", 0.1),
    "ddlplan plans list": ("import sqlalchemy, typer", 0.2),
    "ddlplan use-cases": ("import typer", 0.1),
}
"""For each command the imports it needs at least, and the seconds that it may take beyond them."""


def main() -> int:
    """Measure and show."""
    arguments, out = begin(make_parser(__doc__, runs=(20, "of each command")))
    with Ddlplan.in_own_folder() as ddlplan:
        _store_plans(ddlplan)
        [program, *_] = ddlplan.command()
        commands = {
            "ddlplan --help": [program, "--help"],
            "ddlplan plans list": ddlplan.command("plans", "list"),
            "ddlplan use-cases": [program, "use-cases"],
        }
        floors = {name: [program_python(program), "-c", _FLOORS[name][0]] for name in commands}
        beyond_s: dict[str, list[float]] = {name: [] for name in commands}
        times_s: dict[str, list[float]] = {name: [] for name in commands}
        for name, command in commands.items():
            if not _time_s(ddlplan, command, name)[1]:
                raise BenchError(f"{name} prints nothing")
        for number in range(arguments.runs):
            for name, command in commands.items():
                pair = [(command, name), (floors[name], _FLOORS[name][0])]
                timed = {
                    what: _time_s(ddlplan, c, what)[0] for c, what in pair[:: 1 - 2 * (number % 2)]
                }
                times_s[name].append(timed[name])
                beyond_s[name].append(timed[name] - timed[_FLOORS[name][0]])
    return out.conclude(
        [result for name in commands for result in _results(name, times_s[name], beyond_s[name])]
    )


def program_python(program: str) -> str:
    """Give the Python that an installed program runs with."""
    return str(Path(program).with_name("python"))


def _results(name: str, times_s: list[float], beyond_s: list[float]) -> list[Result]:
    imports, limit_s = _FLOORS[name]
    median = Measurement(samples_s=tuple(times_s)).interval_s()
    return [
        Result(f"{name}, median", median, "s"),
        Result(
            f"{name} beyond python -c '{imports}'", mean_difference(beyond_s), "s", high=limit_s
        ),
    ]


def _time_s(ddlplan: Ddlplan, command: list[str], name: str) -> tuple[float, str]:
    """Run a command; give its time and what it printed."""
    started = time.perf_counter()
    done = subprocess.run(
        command,
        cwd=ddlplan.folder,
        env=ddlplan.environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    time_s = time.perf_counter() - started
    if done.returncode != 0:
        raise BenchError(f"exit code {done.returncode} of {name}\n{done.stderr}")
    return time_s, done.stdout


def _store_plans(ddlplan: Ddlplan) -> None:
    """Fill the database with plans, so that listing them has something to do."""
    for number in range(_PLANS):
        file = ddlplan.folder / f"plan-{number}.json"
        file.write_text(json.dumps(_plan(number)))
        ddlplan.run("plans", "import", file)


def _plan(number: int) -> dict[str, Any]:
    rate = 20.0 + number
    moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=number)
    return {
        "use_case": "simplebig",
        "node": platform.node(),
        "fingerprint": "sha256:none",
        "strategy": "sequential",
        "node_batch": 32 + number,
        "throughput_samples_per_s": {
            "median": rate,
            "ci_low": rate - 1,
            "ci_high": rate + 1,
            "samples": 10,
        },
        "created_at": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "software": {"python": platform.python_version()},
    }


if __name__ == "__main__":
    run_bench(main)

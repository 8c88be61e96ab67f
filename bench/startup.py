"""Time of commands that train nothing, beside the imports that they cannot do without."""

from __future__ import annotations

import json
import platform
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from _block import BenchError, Ddlplan, Result, begin, make_parser, mean_interval, run_bench

from probes.timing import Measurement

_PLANS = 8

_COMMANDS = {
    "--help": ("import typer", 0.1),
    "plans list": ("import sqlalchemy, typer", 0.2),
    "use-cases": ("import typer", 0.1),
}
"""For each the imports it needs at least, and the seconds that it may take beyond them."""


def main() -> int:
    """Measure and show."""
    arguments, out = begin(make_parser(__doc__, runs=(20, "of each command")))
    results: list[Result] = []
    with Ddlplan.in_own_folder() as ddlplan:
        _store_plans(ddlplan)
        [program, *database] = ddlplan.command()
        python = str(Path(program).with_name("python"))
        for words, (imports, limit_s) in _COMMANDS.items():
            pair = [
                [program, *words.split(), *(database if words == "plans list" else ())],
                [python, "-c", imports],
            ]
            if not ddlplan.execute(pair[0])[0]:
                raise BenchError(f"ddlplan {words} prints nothing")
            times_s: list[list[float]] = [[], []]
            for number in range(arguments.runs):
                for place in (0, 1) if number % 2 == 0 else (1, 0):
                    times_s[place].append(ddlplan.execute(pair[place])[1])
            beyond_s = [time_s - floor_s for time_s, floor_s in zip(*times_s, strict=True)]
            usual = Measurement(samples_s=tuple(times_s[0])).interval_s()
            beyond = mean_interval(beyond_s)
            figure = f"ddlplan {words} beyond python -c '{imports}'"
            results += [
                Result(f"ddlplan {words}, median", usual, "s"),
                Result(figure, beyond, "s", high=limit_s),
            ]
    return out.conclude(results)


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

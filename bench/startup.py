"""Time of commands that train nothing, beside the imports that they cannot do without."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

from _block import BenchError, Ddlplan, Result, begin, make_parser, mean_interval, run_bench
from sample_plan import FOUND

from planner.store import Store
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
        _store_plans(ddlplan.database)
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


def _store_plans(database: Path) -> None:
    """Fill the database with plans, so that listing them has something to do."""
    software = {"python": platform.python_version()}
    with Store.open(str(database)) as store:
        for _ in range(_PLANS):
            store.plans.save(replace(FOUND, node=platform.node(), software=software))


if __name__ == "__main__":
    run_bench(main)

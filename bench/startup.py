"""How long does a command take that trains nothing? Help, stored plans, use cases."""

from __future__ import annotations

import json
import platform
import subprocess
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from _block import (
    BenchError,
    Ddlplan,
    Output,
    Required,
    Result,
    make_parser,
    positive,
    run_bench,
)

from probes.timing import Measurement

_LIMIT_S = 0.5
_PLANS = 8


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__)
    parser.add_argument("--runs", type=positive, default=20, help="of each command (20)")
    arguments = parser.parse_args()
    out = Output("startup", as_json=arguments.json)
    out.introduce()
    with Ddlplan.in_own_folder() as ddlplan:
        _store_plans(ddlplan)
        [program, *_] = ddlplan.command()
        commands = {
            "ddlplan --help": [program, "--help"],
            "ddlplan plans list": ddlplan.command("plans", "list"),
            "ddlplan use-cases": [program, "use-cases"],
        }
        times_s: dict[str, list[float]] = {name: [] for name in commands}
        for name, command in commands.items():
            if not _time_s(ddlplan, command, name)[1]:
                raise BenchError(f"{name} prints nothing")
        for _ in range(arguments.runs):
            for name, command in commands.items():
                times_s[name].append(_time_s(ddlplan, command, name)[0])
    return out.conclude(
        [result for name, known in times_s.items() for result in _results(name, known)]
    )


def _results(name: str, times_s: list[float]) -> list[Result]:
    required = Required(high=_LIMIT_S)
    median = Measurement(samples_s=tuple(times_s)).interval_s()
    return [
        Result(figure=f"{name}, median", value=median, unit="s", required=required),
        Result(figure=f"{name}, slowest", value=max(times_s), unit="s", required=required),
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

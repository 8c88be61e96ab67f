"""Shared parts of all benches: a folder of their own, alternating blocks, results as a table."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import IO, Any, NoReturn, TextIO, TypeVar

from _machine import describe_machine

from launch.errors import LaunchError
from planner.errors import PlannerError
from probes.errors import ProbeError
from probes.timing import Interval, student_quantile

T = TypeVar("T")

_TESTS = Path(__file__).parents[1] / "tests"
sys.path += [str(_TESTS / part) for part in ("hosts", "planner", "planner/service/pages")]
"""Benches use hosts, servers and stored things of the tests."""

CASES = Path(__file__).with_name("_cases.py")
"""Use cases of benches: `launch` and `tune` know them by ``FILE:CLASS``."""

_QUIET_CORES = 0.15
_FAULTS_SHOWN, _LONGEST_FAULT = 30, 600


class BenchError(Exception):
    """A bench cannot say anything: a command failed, or the machine lacks something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one command of ddlplan gave."""

    data: Any
    """``data`` of its JSON document; ``None`` where it was not asked for one."""

    wall_s: float
    """From the start of the command to its exit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ddlplan:
    """The command as a user types it, in a folder and with a database of its own."""

    folder: Path
    database: Path

    cache: Path | None = None
    """Where it keeps what it can make again, if not in the user's own cache."""

    @classmethod
    @contextmanager
    def in_own_folder(cls, *, own_cache: bool = False) -> Iterator[Ddlplan]:
        """Give it a new folder, which is removed at the end.

        Args:
            own_cache: Have its cache there too, as for photos that are gone afterwards.
        """
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            cache = Path(name, "cache") if own_cache else None
            yield cls(folder=Path(name), database=Path(name, "planner.db"), cache=cache)

    def command(self, *arguments: object) -> list[str]:
        """Give a command line on this database."""
        return [_program(), *map(str, arguments), "--db", str(self.database)]

    def environment(self) -> dict[str, str]:
        """Give this process's environment without options of the user's.

        Temporary files of commands that are killed are left in the folder, and go with it.
        """
        kept = {
            name: value
            for name, value in os.environ.items()
            if name == "DDLPLAN_CACHE" or not name.startswith("DDLPLAN_")
        }
        own_cache = {} if self.cache is None else {"DDLPLAN_CACHE": str(self.cache)}
        return kept | own_cache | {"NO_COLOR": "1", "TMPDIR": str(self.folder)}

    def start(
        self,
        *arguments: object,
        output: IO[bytes] | int = subprocess.DEVNULL,
        errors: IO[bytes] | int = subprocess.DEVNULL,
        variables: Mapping[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start a command, such as one that is killed later."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env={**self.environment(), **(variables or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
        )

    def run(self, *arguments: object, show_progress: bool = False) -> Answer:
        """Run a command to its end.

        Args:
            arguments: What follows ``ddlplan``; ``--db`` and ``--json`` are added.
            show_progress: Let its stderr through.

        Raises:
            BenchError: It failed.
        """
        command = [*self.command(*arguments), "--json"]
        text, wall_s = self.execute(command, show_progress=show_progress)
        return Answer(data=json.loads(text)["data"], wall_s=wall_s)

    def execute(self, command: Sequence[str], *, show_progress: bool = False) -> tuple[str, float]:
        """Run a command line to its end; give what it printed, and the time that it took."""
        started = time.perf_counter()
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if show_progress else subprocess.PIPE,
            text=True,
            check=False,
        )
        wall_s = time.perf_counter() - started
        if done.returncode != 0:
            tail = "\n".join((done.stderr or "").splitlines()[-20:])
            raise BenchError(f"exit code {done.returncode} of {' '.join(command)}\n{tail}".strip())
        return done.stdout, wall_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """The range in which a figure should lie, ends included."""

    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"<= {self.high:g}" if self.low is None else f">= {self.low:g}"
        return f"{self.low:g} to {self.high:g}"

    def judge(self, low: float, high: float) -> str:
        """Hold an interval against the range: ``yes``, ``no``, or ``open`` where it overlaps."""
        floor = float("-inf") if self.low is None else self.low
        ceiling = float("inf") if self.high is None else self.high
        if high < floor or low > ceiling:
            return "no"
        return "yes" if floor <= low and high <= ceiling else "open"


@dataclass(frozen=True, slots=True)
class Result:
    """One figure that a bench found, and the range in which it should lie, if there is one."""

    figure: str
    value: Interval | float
    """Infinite where there is none because what was asked for was not reached."""
    unit: str = ""
    low: float | None = None
    high: float | None = None

    @property
    def required(self) -> Required | None:
        """The range, ``None`` where any figure will do."""
        is_free = self.low is None and self.high is None
        return None if is_free else Required(low=self.low, high=self.high)

    @property
    def verdict(self) -> str:
        """Whether the figure is as required; empty where nothing is."""
        if self.required is None:
            return ""
        low, high = self._range()
        return self.required.judge(low, high)

    def cells(self) -> list[str]:
        """Give the row of the table."""
        if isinstance(self.value, Interval):
            found = f"{self.value.median:.3g} ({self.value.low:.3g} to {self.value.high:.3g})"
            samples = str(self.value.count)
        else:
            is_count = isinstance(self.value, int)
            found, samples = f"{self.value}" if is_count else f"{self.value:.3g}", ""
        required = "" if self.required is None else str(self.required)
        return [self.figure, f"{found} {self.unit}".strip(), samples, required, self.verdict]

    def to_json(self) -> dict[str, Any]:
        """Give the result as plain values."""
        low, high = self._range()
        known = isinstance(self.value, Interval)
        value = self.value.median if isinstance(self.value, Interval) else self.value
        return {
            "figure": self.figure,
            "value": _finite(value),
            "ci_low": _finite(low) if known else None,
            "ci_high": _finite(high) if known else None,
            "samples": self.value.count if isinstance(self.value, Interval) else None,
            "unit": self.unit or None,
            "required": None if self.required is None else str(self.required),
            "verdict": self.verdict or None,
        }

    def _range(self) -> tuple[float, float]:
        value = self.value
        return (value.low, value.high) if isinstance(value, Interval) else (value, value)


def _finite(value: float) -> float | None:
    """Give a number that JSON can hold, ``None`` in place of an infinite one."""
    return value if math.isfinite(value) else None


class Output:
    """Where a bench writes: text, or one JSON document per result with the text on stderr.

    Args:
        bench: Its name.
        as_json: Whether stdout gets JSON.
    """

    def __init__(self, bench: str, *, as_json: bool) -> None:
        self._bench = bench
        self._as_json = as_json
        self.machine = describe_machine()
        self.text: TextIO = sys.stderr if as_json else sys.stdout

    def say(self, line: str = "") -> None:
        """Write a line for people, at once."""
        print(line, file=self.text, flush=True)

    def introduce(self) -> None:
        """Name machine and versions, and how busy others keep it."""
        facts = self.machine
        versions = ", ".join(f"{name} {known}" for name, known in facts["versions"].items())
        self.say(f"{facts['cpu']}, {facts['usable_cores']} usable cores, Linux {facts['kernel']}")
        self.say(versions)
        load = ", ".join(f"{value:.2f}" for value in facts["load_average"])
        busy = facts["busy_cores"]
        self.say(f"load average {load}; {busy:.2f} cores busy before the start")
        if busy > _QUIET_CORES:
            self.say("warning: others use this machine: rerun when it is quiet")
        self.say()

    def show(self, results: Sequence[Result]) -> None:
        """Write results as they become known: a bench that is ended early has said them."""
        for result in results:
            figure, measured, *_ = result.cells()
            self.say(f"{figure}: {measured}")

    def show_each(self, results: Iterable[Result]) -> list[Result]:
        """Write results as they are measured; give all of them."""
        found = []
        for result in results:
            self.show([result])
            found.append(result)
        return found

    def conclude(self, results: Sequence[Result]) -> int:
        """Show the results; give the exit status, 1 where one is not as required."""
        self.table(
            ["FIGURE", "MEASURED (95 % INTERVAL)", "SAMPLES", "REQUIRED", "REACHED"],
            [result.cells() for result in results],
        )
        for result in results:
            self.document(result.to_json())
        return 1 if any(result.verdict == "no" for result in results) else 0

    def document(self, values: dict[str, Any]) -> None:
        """Write one result as JSON, where JSON is wanted."""
        if self._as_json:
            line = {"bench": self._bench, **values, "machine": self.machine}
            print(json.dumps(line, allow_nan=False), flush=True)

    def table(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write rows below their titles, aligned."""
        widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
        for row in (titles, *rows):
            cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
            self.say("  ".join(cells).rstrip())


def show_faults(faults: Sequence[str], out: Output) -> None:
    """Show what was found to be wrong: not more than a person reads."""
    for fault in faults[:_FAULTS_SHOWN]:
        out.say(fault[:_LONGEST_FAULT])
    if len(faults) > _FAULTS_SHOWN:
        out.say(f"... and {len(faults) - _FAULTS_SHOWN} more")


def alternate(first: Callable[[], T], second: Callable[[], T], *, blocks: int) -> list[tuple[T, T]]:
    """Run two things in blocks A B B A; give the ``(A, B)`` pairs of neighbours.

    What drifts evenly (heat, clock, page cache) then favours neither: in the first pair of a block
    A comes first, in the second one B.
    """
    pairs = []
    for _ in range(blocks):
        pairs.append((first(), second()))
        after = second()
        pairs.append((first(), after))
    return pairs


def percentile(values: Sequence[float], share: float) -> float:
    """Give the value that a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def mean_interval(values: Sequence[float]) -> Interval:
    """Give the mean with Student's 95 % interval; ``median`` holds the mean."""
    half = student_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values))
    centre = fmean(values)
    return Interval(median=centre, low=centre - half, high=centre + half, count=len(values))


def stated_interval(values: Mapping[str, float], count: int) -> Interval:
    """Read an interval of a JSON document of ddlplan's."""
    low, high = values["ci_low"], values["ci_high"]
    return Interval(median=values["median"], low=low, high=high, count=count)


def make_parser(description: str | None, **counts: tuple[int, str]) -> argparse.ArgumentParser:
    """Give a parser with the option that every bench has, and options for whole numbers.

    Args:
        description: Of the bench: the first line is shown.
        counts: Of each option the default, and what it counts; 1 is the least.
    """
    assert description is not None
    parser = argparse.ArgumentParser(description=description.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="a JSON document per result on stdout")
    for name, (usual, what) in counts.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=positive, default=usual, help=f"{what} ({usual})")
    return parser


def begin(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Output]:
    """Read the command line, and say on which machine this is; the bench has its file's name."""
    arguments = parser.parse_args()
    out = Output(Path(sys.argv[0]).stem, as_json=arguments.json)
    out.introduce()
    return arguments, out


def positive(text: str) -> int:
    """Read a whole number of at least 1, for `argparse`."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: use 1 or more")
    return number


def root_option() -> list[str]:
    """Give what `ddlplan launch` wants to be told where the user is root, as in a container."""
    return ["--allow-run-as-root"] if os.geteuid() == 0 else []


def run_bench(main: Callable[[], int]) -> NoReturn:
    """Run a bench's main function as this program; whatever ends it, it cleans up."""

    def terminate(number: int, _: object) -> NoReturn:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, terminate)
    try:
        sys.exit(main())
    except (BenchError, LaunchError, PlannerError, ProbeError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)


def _program() -> str:
    """Find the `ddlplan` that belongs to this Python."""
    beside = Path(sys.executable).with_name("ddlplan")
    found = str(beside) if beside.exists() else shutil.which("ddlplan")
    if found is None:
        raise BenchError("no ddlplan beside this Python: run make demo once, or install it")
    return found

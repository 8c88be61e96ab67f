"""All that needs a GPU, in parts of less than 9 minutes: limits, tests, searches, trainings.

A GPU may be at hand for half an hour only. Each part that ends leaves a line of JSON in one file of
results, and the same command goes on with what is missing there. This file imports nothing but
Python's own library, so that it can set up an environment from a folder of wheels first.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import site
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any

ROOT = Path(__file__).parents[1]
MODELS = ("alexnet", "resnet50", "transformer", "vgg16")
PRECISIONS = ("bf16", "fp32")

_PART_LIMIT_S = 530.0
_SLOWEST = 3.0
"""How many times as long as usual a part may take: one that hangs leaves time for the others."""

_END_GRACE_S = 10.0
_TAIL_LINES = 200
_LEFT = 3

_BEGAN = "GPU_DAY_BEGAN_S"
"""Variable: when the command began, before it went on in an environment of its own."""


@dataclass(frozen=True)
class Part:
    """A part of the day, run in a process of its own."""

    name: str
    usual_s: float
    """What it takes, as a rule."""

    @property
    def limit_s(self) -> float:
        """Give the time after which it is ended."""
        return min(_PART_LIMIT_S, _SLOWEST * self.usual_s)


def list_parts(options: argparse.Namespace) -> list[Part]:
    """Give all parts, those that show most first."""
    tune_s, train_s = options.budget + 120, options.rounds * (5 * options.seconds + 90)
    each = [
        [Part(f"tune {model} {precision}", tune_s), Part(f"train {model} {precision}", train_s)]
        for precision in PRECISIONS
        for model in MODELS
    ]
    first = [Part("machine", 60.0), Part("tests", 240.0), *each[0], Part("ranks", 120.0)]
    return first + [part for both in each[1:] for part in both]


class Day:
    """Runs what is missing in the file of results.

    Args:
        options: Of the command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        began_s = float(os.environ.pop(_BEGAN))  # no part begins a day of its own
        self._ends_s = began_s + options.time if options.time else float("inf")

    def run(self) -> int:
        """Run the parts that time is left for; give the exit status."""
        parts = [
            part
            for part in list_parts(self._options)
            if not self._options.only or part.name.startswith(tuple(self._options.only))
        ]
        lines = read_results(self._options.results)
        missing = [part for part in parts if lines.get(part.name, {}).get("state") != "done"]
        missing.sort(key=lambda part: part.name in lines)  # what failed before comes last
        for part in missing:
            left_s = self._ends_s - time.monotonic()
            if left_s < part.usual_s:
                _say(f"{part.name}: not begun, it takes about {part.usual_s:.0f} s")
                continue
            self._keep(part, self._run(part, min(part.limit_s, left_s)))
        return _conclude(parts, read_results(self._options.results), self._options.results)

    def _run(self, part: Part, limit_s: float) -> dict[str, Any]:
        """Run a part to its end, or end it; give what it found, or why it found nothing."""
        _say(f"-- {part.name}")
        command = [sys.executable, __file__, *sys.argv[1:], "--part", part.name]
        command += ["--limit", str(limit_s)]
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        ends_s = time.monotonic() + limit_s
        with tempfile.TemporaryFile("w+") as answer:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=answer,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            timer = Timer(limit_s, _end, [child])
            timer.start()
            try:
                assert child.stderr is not None
                for line in child.stderr:
                    print(line, end="", file=sys.stderr, flush=True)
                    tail.append(line)
                status = child.wait()
            finally:
                was_ended = time.monotonic() >= ends_s
                timer.cancel()
                _end(child)
            answer.seek(0)
            found = [line for line in answer if line.startswith("{")]  # not what libraries say
        if status == 0 and found:
            said: dict[str, Any] = json.loads(found[-1])
            return {"state": "done", **said}
        why = f"no end within {limit_s:.0f} s" if was_ended else f"exit code {status}"
        return {"state": "failed", "error": f"{why}\n{''.join(tail)}".strip()}

    def _keep(self, part: Part, found: dict[str, Any]) -> None:
        line = {"part": part.name, "at": datetime.now(UTC).isoformat(timespec="seconds"), **found}
        with self._options.results.open("a") as file:
            file.write(json.dumps(line, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())


def read_results(file: Path) -> dict[str, dict[str, Any]]:
    """Give the last line of each part; a line that was cut off counts as none."""
    lines: dict[str, dict[str, Any]] = {}
    for text in file.read_text().splitlines() if file.exists() else ():
        with suppress(json.JSONDecodeError):
            line = json.loads(text)
            lines[line["part"]] = line
    return lines


def _conclude(parts: list[Part], lines: dict[str, dict[str, Any]], file: Path) -> int:
    """Show all figures; give 0 where everything is done, 1 after a failure, 3 if more is left."""
    states = {part.name: lines.get(part.name, {}).get("state", "missing") for part in parts}
    for name, state in states.items():
        line = lines.get(name, {})
        _say(
            f"{state:8} {name}" + (f": {line['error'].splitlines()[0]}" if "error" in line else "")
        )
        for result in line.get("results", ()):
            unit = f" {result['unit']}" if result["unit"] else ""
            side = (
                ""
                if result["ci_low"] is None
                else f" ({result['ci_low']:.4g} to {result['ci_high']:.4g})"
            )
            _say(f"         {result['figure']}: {result['value']:.4g}{side}{unit}")
    _say(f"results: {file}")
    if "missing" in states.values():
        _say("parts are missing: the same command goes on from here")
        return _LEFT
    return int("failed" in states.values())


def _end(child: subprocess.Popen[str]) -> None:
    """End a part with all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_END_GRACE_S)


def _enter_environment(options: argparse.Namespace) -> None:
    """Go on in an environment that has this Python's packages, and what is missing from wheels."""
    folder = options.results.with_suffix(".venv").absolute()
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        # A Linux may have venv without what puts pip into it. That of this Python is seen there.
        bare = ["--without-pip"] if find_spec("pip") is not None else []
        subprocess.run([sys.executable, "-m", "venv", "--clear", *bare, str(folder)], check=True)
        asked = [str(python), "-c", "import site; print(site.getsitepackages()[0])"]
        own = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
        # Not --system-site-packages: where this Python is an environment's, that is another's.
        users = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
        Path(own, "parent.pth").write_text("\n".join([*users, *site.getsitepackages()]) + "\n")
        install = [str(python), "-m", "pip", "install", "--quiet", "--no-index"]
        install += ["--find-links", str(options.wheels.absolute())]
        subprocess.run([*install, "setuptools>=77"], check=True)
        subprocess.run([*install, "--no-build-isolation", "--editable", str(ROOT)], check=True)
        if subprocess.run([*install, *_list_test_packages()], check=False).returncode:
            _say(f"no tests without these wheels: add them, and remove {folder}")
        (folder / "ready").touch()
    rest = sys.argv[1:]
    place = next(i for i, word in enumerate(rest) if word.startswith("--wheels"))
    del rest[place : place + (1 if "=" in rest[place] else 2)]
    os.execv(python, [str(python), __file__, *rest])


def _list_test_packages() -> list[str]:
    """List what runs the tests, of all that developers have."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        wanted = tomllib.load(file)["project"]["optional-dependencies"]["dev"]
    return [package for package in wanted if package.startswith("pytest")]


def _say(text: str) -> None:
    print(text, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--device", default="cuda:0", help="where (cuda:0); cpu shows on small models that it runs")
    add("--results", type=Path, default=Path("gpu_day.jsonl"), help="file (gpu_day.jsonl)")
    add("--time", type=float, help="in seconds: begin no part that may take longer (no limit)")
    add("--only", action="append", help="parts whose names begin so, such as 'tune alexnet'")
    add("--wheels", type=Path, help="folder of the wheels that this Python lacks")
    add("--part", help=argparse.SUPPRESS)
    add("--limit", type=float, default=_PART_LIMIT_S, help=argparse.SUPPRESS)
    options = parser.parse_args()
    # Seconds of a search and of a timed run; of ours, plain and compiled; photos for training.
    usual = (120.0, 15.0, 2, 5000) if options.device != "cpu" else (45.0, 3.0, 1, 16)
    options.budget, options.seconds, options.rounds, options.photos = usual
    return options


def main() -> int:
    """Run the day, or one part of it."""
    options = _parse()
    os.environ.setdefault(_BEGAN, str(time.monotonic()))
    if options.wheels is not None:
        _enter_environment(options)
    if options.part is None:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        return Day(options).run()
    from _block import BenchError
    from _gpu_parts import run_part

    try:
        found = run_part(options, read_results(options.results))
    except BenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(json.dumps(found, allow_nan=False))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)

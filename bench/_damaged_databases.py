"""Databases with damaged bytes, which the store and commands read and write."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import signal
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from _block import Output, Result, show_faults
from _store_samples import STUDY, draw_transactions, make_plan
from store_cases import trial
from worth_cases import NODE

from planner.__main__ import run
from planner.errors import NoDatabaseError, PlannerError
from planner.exit_codes import classify_error
from planner.store import Store

_PROCESSES, _HANGS_S = 2, 60
_COMMAND_EVERY = 20


def damage_databases(count: int, out: Output) -> list[Result]:
    """Damage a good database in many ways and use each."""
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        good = Path(folder, "good.db")
        with Store.open(str(good)) as store:
            for transaction in draw_transactions(random.Random(0), 60):
                transaction(store)
        content = good.read_bytes()
        out.say(f"a database of {len(content)} bytes, damaged {count} times")
        ended: Counter[str] = Counter()
        faults: list[str] = []
        parts = [range(start, min(start + 100, count)) for start in range(0, count, 100)]
        work = partial(_try_damaged, content)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(_PROCESSES, mp_context=spawn) as pool:
            for number, (kinds, said) in enumerate(pool.map(work, parts)):
                ended += kinds
                faults += said
                show_faults(said, out)
                if number % 20 == 19:
                    out.say(f"{100 * (number + 1)}: {len(faults)} faults")
    for kind, times in sorted(ended.items()):
        out.say(f"{kind}: {times}")
    return [
        Result("damaged databases", count),
        Result("of them refused", count - ended["read"]),
        Result(
            "tracebacks, other exit codes than 6, messages of several lines, hangs",
            len(faults),
            high=0,
        ),
    ]


def _try_damaged(content: bytes, numbers: range) -> tuple[Counter[str], list[str]]:
    """Damage a database in several ways and use each; give how that ended, and what is wrong."""
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    # In memory, where there is room: nobody cuts the power here, and no sync is waited for.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-", dir=memory) as folder:
        path = Path(folder, "planner.db")
        for number in numbers:
            chance = random.Random(f"0 {number}")
            damaged = _damaged(content, chance)
            path.write_bytes(damaged)
            Path(folder, "planner.db-journal").unlink(missing_ok=True)
            signal.signal(signal.SIGALRM, _say_hang)
            signal.alarm(_HANGS_S)
            try:
                kinds[_use(path)] += 1
                if number % _COMMAND_EVERY == 0:
                    path.write_bytes(damaged)
                    _use_commands(path)
            except _FaultFoundError as found:
                faults.append(f"damage {number}: {found}")
            finally:
                signal.alarm(0)
    return kinds, faults


class _FaultFoundError(Exception):
    """The store did not do as it should."""


def _say_hang(*_: object) -> None:
    raise _FaultFoundError(f"it hangs: {''.join(traceback.format_stack(limit=8))}")


def _damaged(content: bytes, chance: random.Random) -> bytes:
    """Give a database with one kind of damage, or several."""
    damaged = bytearray(content)
    page = 4096
    pages = len(content) // page
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        match chance.choice(("bytes", "bits", "zero", "cut", "swap", "noise", "head", "repeat")):
            case "bytes":
                for _ in range(chance.randint(1, 64)):
                    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            case "bits":
                for _ in range(chance.randint(1, 8)):
                    damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
            case "zero":
                start = page * chance.randrange(pages)
                damaged[start : start + page] = bytes(page)
            case "cut":
                del damaged[chance.randrange(1, len(damaged)) :]
            case "swap":
                first, second = (page * chance.randrange(pages) for _ in range(2))
                one, other = damaged[first : first + page], damaged[second : second + page]
                damaged[first : first + page], damaged[second : second + page] = other, one
            case "noise":
                start, length = chance.randrange(len(damaged)), chance.randint(1, 2 * page)
                noise = chance.randbytes(min(length, len(damaged) - start))
                damaged[start : start + len(noise)] = noise
            case "head":  # of a page: its kind, its cells
                start = page * chance.randrange(pages) + chance.randrange(16)
                if start < len(damaged):
                    damaged[start] = chance.randrange(256)
            case "repeat":
                start = page * chance.randrange(pages)
                damaged += damaged[start : start + page]
        if len(damaged) < 2 * page:
            break
    return bytes(damaged)


def _use(path: Path) -> str:
    """Read and write a database; give how that ended."""
    try:
        with Store.open(str(path), create=False, lock_timeout_s=1) as store:
            for read in _READS:
                read(store)
            study_id = store.studies.get_or_create(STUDY)
            store.studies.add_trial(study_id, trial(1))
            store.plans.save(make_plan(study_id), ends_search=True)
            store.studies.begin_search(replace(STUDY, node="other"), fresh=False)
            store.machines.save_probe(NODE)
            store.jobs.beat(1)
    except PlannerError as error:
        known = classify_error(error)
        code = known[0] if known else None
        # Where the schema or the whole file is gone there is no database; a row may be gone, too.
        if code != 6 and not isinstance(error, NoDatabaseError):
            raise _FaultFoundError(f"exit code {code}: {_in_brief(error)}") from error
        if "\n" in str(error):
            raise _FaultFoundError(f"several lines: {error!s}") from error
        return known[1] if known else ""
    except _FaultFoundError:
        raise
    except BaseException as error:
        raise _FaultFoundError(_in_brief(error)) from error
    return "read"


def _in_brief(error: BaseException) -> str:
    """Give an error in a line, with the places of our code that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f"{Path(f.filename).name}:{f.lineno}" for f in frames if "/planner/" in f.filename]
    return f"{type(error).__name__} in {' '.join(ours)}: {' '.join(str(error).split())[:200]}"


_READS: tuple[Callable[[Store], Any], ...] = (
    lambda store: store.plans.find(),
    lambda store: store.plans.find("simplebig"),
    lambda store: store.studies.all_trials(),
    lambda store: store.plans.best("simplebig", software={}, fingerprint=None, node="vm"),
    lambda store: store.studies.find_for_use_case("simplebig", "vm"),
    lambda store: store.plans.find_namesakes("a.py:b"),
    lambda store: store.studies.begin_search(STUDY, fresh=False),
    lambda store: store.machines.latest_probe(NODE.fingerprint()),
    lambda store: store.machines.latest_links({}),
    lambda store: store.jobs.find(),
    lambda store: store.trainings.find(),
    lambda store: store.catalog.machines(),
    lambda store: store.catalog.studies(),
    lambda store: store.events.after(0),
)

_COMMANDS = (
    ("plans", "list"),
    ("plans", "show", "1"),
    ("plans", "best", "--use-case", "simplebig"),
    ("trials",),
    ("trials", "--csv"),
    ("jobs", "list"),
    ("runs", "list"),
    ("db", "info"),
    ("db", "check"),
    ("plans", "rm", "1"),
)


def _use_commands(path: Path) -> None:
    """Give a database to commands."""
    for command in _COMMANDS:
        stdout, stderr = io.StringIO(), io.StringIO()
        with _alone(), redirect_stdout(stdout), redirect_stderr(stderr):
            code = run([*command, "--db", str(path)])
        said = stderr.getvalue()
        errors = [line for line in said.splitlines() if line.startswith("error:")]
        # 3: no plan of this number or use case; 2: no plan to remove, no study.
        if code not in (0, 6, 3) or "Traceback" in said or len(errors) != (code != 0):
            raise _FaultFoundError(f"{' '.join(command)}: exit code {code}: {said}")


@contextmanager
def _alone() -> Iterator[None]:
    """Leave options of the user's aside."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("DDLPLAN_")}
    try:
        yield
    finally:
        os.environ.update(kept)

"""Faults that the store must outlive: killed searches, power that is cut, damaged databases.

Three parts, each by itself or all together:

* ``--kills``: a search on recorded times, which stores its trials and its plan, is killed by
  ``kill -9`` at random moments, again and again on one database. Every acknowledged trial is there
  once, at most one more, and the database is whole.
* ``--power``: each write, truncation, sync and removal that SQLite makes is put on record
  (`_sqlite_writes.py`). At random places of the record the power is cut: what was synced is there,
  of the rest any part, and in writes that are cut short. What is read from it afterwards is the
  state before or after the transaction of that moment, and no acknowledged one is missing.
* ``--damaged``: bytes of a good database are flipped, pages zeroed or swapped, the end cut off.
  What then reads and writes it works, or ends with exit code 6 and one line. Every twentieth is
  also given to commands.

Where SQLite keeps the data cannot tell a flipped bit in a time from another time: it has no
checksums. So of damaged databases only that they are refused, or read without a traceback, is
asked.
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import time
import traceback
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from _block import Output, Required, Result, make_parser, run_bench
from _sqlite_writes import Disk, Recorder

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.workload import Workload
from planner.__main__ import run
from planner.errors import NoDatabaseError, PlannerError
from planner.exit_codes import classify_error
from planner.plans.stored_plan import StoredPlan, utc_now
from planner.records.job_record import JobKind, JobRecord, JobState
from planner.store import Store
from planner.store.inspection import check_database
from planner.store.study_store import StudyStore
from planner.trials.grid import read_grid
from planner.trials.replay import Replay
from planner.trials.reports import ignore
from planner.trials.result import Outcome, Role, TrialResult
from planner.tuning.conclusion import conclude
from planner.tuning.findings import Findings
from planner.tuning.study import EarlierTrials, LaterTrials, Study
from planner.tuning.tune import Tuner
from planner.tuning.tune_request import TuneRequest
from probes.hardware import CoreLimit, Cpu, Hardware, Memory
from probes.timing import Interval, Measurement

_GRID = Path(__file__).with_name("grids") / "synthetic-8-cores.json"
_STATES_OF_A_PLACE = 4
_HANGS_S = 60
_COMMAND_EVERY = 20
_FAULTS_SHOWN = 30
_LONGEST_FAULT = 600

_NODE = Hardware(
    node="vm",
    cpu=Cpu(
        architecture="x86_64",
        logical_cores=2,
        usable_cores=2,
        core_ids=(0, 1),
        limits=(CoreLimit(source="affinity", cores=2),),
    ),
    memory=Memory(total_bytes=2**34, usable_bytes=2**34),
)
_CASE = CaseFacts(
    default_batch=32,
    train_samples=5418,
    validation_samples=585,
    parameter_count=57_000_000,
    parameter_bytes=228_000_000,
    max_stages=8,
    digest="sha256:cc",
)
_STUDY = Study(
    use_case="simplebig",
    node="vm",
    fingerprint=_NODE.fingerprint(),
    precision="fp32",
    software={"torch": "2.15.0", "ddlplan": "0.1.0", "python": "3.11.7"},
    data="sha256:cc",
    seed=0,
    facts=_CASE,
)
_PLAN = Plan(strategy="threads", node_batch=32, threads_per_process=2)


def main() -> int:
    """Run the parts that are asked for."""
    arguments = _parse()
    out = Output("store_faults", as_json=arguments.json)
    out.introduce()
    parts = {"kills": _kill_searches, "power": _cut_power, "damaged": _damage}
    wanted = {name: getattr(arguments, name) for name in parts}
    results: list[Result] = []
    for name, part in parts.items():
        if wanted[name]:
            found = part(wanted[name], arguments, out)
            out.show(found)
            results += found
    return out.conclude(results)


# A search that is killed.


class _Acknowledging:
    """Studies of a store; each trial is said when it is stored."""

    def __init__(self, studies: StudyStore, pipe: int) -> None:
        self._studies = studies
        self._pipe = pipe

    def begin_search(self, study: Study, *, fresh: bool) -> EarlierTrials:
        return self._studies.begin_search(study, fresh=fresh)

    def later_trials(self, study_id: int, after: int) -> LaterTrials:
        return self._studies.later_trials(study_id, after)

    def add_trial(self, study_id: int, result: TrialResult) -> int:
        number = self._studies.add_trial(study_id, result)
        os.write(self._pipe, f"{number} ".encode())
        return number


def _search(url: str, pipe: int, seed: int, *, fresh: bool) -> None:
    """Search as `tune` does, on recorded times, and store everything."""
    grid = read_grid(_GRID)
    request = TuneRequest(
        workload=Workload(use_case="simplebig", seed=seed), budget_s=600, fresh=fresh
    )
    machine = Replay(grid, seed=seed)
    with Store.open(url) as store:
        trial_store = _Acknowledging(store.studies, pipe)
        findings = Findings(request, grid.case, grid.node, grid.software, trial_store)
        only = [result.parameters for result in grid.results if result.parameters]
        tuner = Tuner(findings, machine.start, ignore, clock=machine.clock, only=only)
        conclude(findings, store.plans, interrupted=tuner.search())


def _kill_searches(count: int, arguments: Namespace, out: Output) -> list[Result]:
    chance = random.Random(arguments.seed)
    fork = multiprocessing.get_context("fork")
    faults: list[str] = []
    acknowledged = in_search = 0
    before: dict[int, str] = {}
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        path = Path(folder, "planner.db")
        for number in range(count):
            reading, writing = os.pipe()
            fresh = number % 5 == 0
            searcher = fork.Process(
                target=_search, args=(str(path), writing, number), kwargs={"fresh": fresh}
            )
            searcher.start()
            os.close(writing)
            time.sleep(chance.uniform(0, arguments.latest_s))
            assert searcher.pid is not None
            os.kill(searcher.pid, signal.SIGKILL)
            searcher.join()
            with os.fdopen(reading) as pipe:
                told = [int(word) for word in pipe.read().split()]
            if searcher.exitcode not in (-signal.SIGKILL, 0):
                faults.append(f"kill {number}: exit code {searcher.exitcode}")
            in_search += searcher.exitcode == -signal.SIGKILL
            acknowledged += len(told)
            found, said = _rows_after_kill(path)
            faults += [f"kill {number}: {one}" for one in said]
            faults += [
                f"kill {number}: trial {known} was there and is not as it was"
                for known, row in before.items()
                if found.get(known) != row
            ]
            new = sorted(found.keys() - before.keys())
            if told != new[: len(told)] or len(new) > len(told) + 1:
                faults.append(f"kill {number}: told of {told}, stored are {new}")
            before = found
        _show(faults, out)
        out.say(f"{in_search} of {count} killed before their end; {len(before)} trials stored")
    return [
        Result(figure="kills in a search", value=in_search),
        Result(figure="trials acknowledged", value=acknowledged),
        Result(
            figure="trials lost, doubled or changed, databases not whole",
            value=len(faults),
            required=Required(high=0),
        ),
    ]


def _rows_after_kill(path: Path) -> tuple[dict[int, str], list[str]]:
    """Give all trials, and what is wrong with the database."""
    if not path.exists():
        return {}, []
    try:
        checked = check_database(str(path))
    except NoDatabaseError:
        return {}, []
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT * FROM trials ORDER BY id").fetchall()
    return {row[0]: repr(row) for row in rows}, list(checked.faults)


# The power is cut.


def _trial(number: int, samples: int) -> TrialResult:
    return TrialResult(
        plan=_PLAN,
        role=Role.SEARCH,
        outcome=Outcome.OK,
        measurement=Measurement(samples_s=(1.5,) * samples),
        elapsed_s=1.0,
        parameters={"mark": number},
    )


def _stored_plan(study_id: int) -> StoredPlan:
    return StoredPlan(
        use_case="simplebig",
        use_case_digest=_CASE.digest,
        node="vm",
        fingerprint=_NODE.fingerprint(),
        plan=_PLAN,
        throughput_samples_per_s=Interval(median=42.8, low=42.1, high=43.5, count=24),
        speedup=None,
        baseline=None,
        peak_memory_bytes=2**30,
        software=_STUDY.software,
        created_at=utc_now(),
        study_id=study_id,
    )


def _transactions(chance: random.Random, count: int) -> Iterator[Callable[[Store], Any]]:
    """Give what a search, its job and somebody who tidies up write, one transaction each."""
    yield lambda store: store.machines.save_probe(_NODE)
    yield lambda store: store.studies.get_or_create(_STUDY)
    yield lambda store: store.jobs.add(
        JobRecord(
            kind=JobKind.TUNE,
            created_at=utc_now(),
            machine="vm",
            user="ann",
            title="ddlplan tune",
            is_detached=False,
            state=JobState.RUNNING,
        )
    )
    plans: list[int] = []
    for number in range(count):
        drawn = chance.random()
        if drawn < 0.6:
            trial = _trial(number, chance.choice((10, 100, 600)))
            yield partial(_add_trial, trial)
        elif drawn < 0.75:
            yield lambda store: plans.append(store.plans.save(_stored_plan(1), ends_search=True))
        elif drawn < 0.85 and plans:
            yield lambda store: store.plans.remove(plans.pop(0))
        elif drawn < 0.95:
            yield lambda store: store.jobs.beat(1)
        else:
            yield lambda store: store.studies.begin_afresh(_STUDY)


def _add_trial(trial: TrialResult, store: Store) -> None:
    store.studies.add_trial(1, trial)


def _digest(path: Path) -> str:
    """Give the digest of everything in a database."""
    with closing(sqlite3.connect(path)) as connection:
        lines = "\n".join(connection.iterdump())
    return hashlib.sha256(lines.encode()).hexdigest()


def _cut_power(count: int, arguments: Namespace, out: Output) -> list[Result]:
    chance = random.Random(arguments.seed)
    recorder = Recorder()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        path = Path(folder, "planner.db")
        digests = ["nothing"]
        with recorder.record():
            store = Store.open(str(path))
        recorder.committed()
        digests.append(_digest(path))
        for transaction in _transactions(chance, arguments.transactions):
            with recorder.record():
                transaction(store)
            recorder.committed()
            digests.append(_digest(path))
        out.say(f"{len(recorder.operations)} operations of {len(digests) - 1} transactions")
        places = sorted(
            chance.sample(range(len(recorder.operations)), -(-count // _STATES_OF_A_PLACE))
        )
        disk, acknowledged, done, cuts = Disk(), 0, 0, 0
        # `create_private` made the database's own name and synced it.
        disk.make("planner.db")
        for place in places:
            for operation in recorder.operations[done:place]:
                acknowledged += operation.kind == "committed"
                disk.apply(operation)
            done = place
            for _ in range(_STATES_OF_A_PLACE):
                cuts += 1
                files = disk.cut_power(chance)
                expected = digests[acknowledged : acknowledged + 2]
                if said := _find_loss(files, expected, Path(folder, "cut")):
                    faults.append(f"at operation {place} of transaction {acknowledged}: {said}")
    _show(faults, out)
    return [
        Result(figure="cuts of the power", value=cuts),
        Result(
            figure="neither before nor after, or an acknowledged transaction lost",
            value=len(faults),
            required=Required(high=0),
        ),
    ]


def _find_loss(files: dict[str, bytes], expected: list[str], folder: Path) -> str | None:
    """Say what is wrong with what a cut has left; ``None`` where nothing is."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    path = folder / "planner.db"
    try:
        checked = check_database(str(path))
    except NoDatabaseError:
        return None if "nothing" in expected else "everything is lost"
    except PlannerError as error:
        return str(error)
    if checked.faults:
        return checked.faults[0]
    return None if _digest(path) in expected else "it is neither before nor after"


# Damaged databases.


def _damage(count: int, arguments: Namespace, out: Output) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as folder:
        good = Path(folder, "good.db")
        with Store.open(str(good)) as store:
            for transaction in _transactions(random.Random(arguments.seed), 60):
                transaction(store)
        content = good.read_bytes()
        out.say(f"a database of {len(content)} bytes, damaged {count} times")
        ended: Counter[str] = Counter()
        faults: list[str] = []
        parts = [range(start, min(start + 100, count)) for start in range(0, count, 100)]
        work = partial(_try_damaged, content, arguments.seed)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.processes, mp_context=spawn) as pool:
            for number, (kinds, said) in enumerate(pool.map(work, parts)):
                ended += kinds
                faults += said
                _show(said, out)
                if number % 20 == 19:
                    out.say(f"{100 * (number + 1)}: {len(faults)} faults")
    for kind, times in sorted(ended.items()):
        out.say(f"{kind}: {times}")
    return [
        Result(figure="damaged databases", value=count),
        Result(figure="of them refused", value=count - ended["read"]),
        Result(
            figure="tracebacks, other exit codes than 6, messages of several lines, hangs",
            value=len(faults),
            required=Required(high=0),
        ),
    ]


def _try_damaged(content: bytes, seed: int, numbers: range) -> tuple[Counter[str], list[str]]:
    """Damage a database in several ways and use each; give how that ended, and what is wrong."""
    kinds: Counter[str] = Counter()
    faults: list[str] = []
    # In memory, where there is room: nobody cuts the power here, and no sync is waited for.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="ddlplan-bench-", dir=memory) as folder:
        path = Path(folder, "planner.db")
        for number in numbers:
            chance = random.Random(f"{seed} {number}")
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
            study_id = store.studies.get_or_create(_STUDY)
            store.studies.add_trial(study_id, _trial(1, 10))
            store.plans.save(_stored_plan(study_id), ends_search=True)
            store.studies.begin_search(replace(_STUDY, node="other"), fresh=False)
            store.machines.save_probe(_NODE)
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
    lambda store: store.plans.best("simplebig", software=_STUDY.software, node="vm"),
    lambda store: store.studies.find_for_use_case("simplebig", "vm"),
    lambda store: store.plans.find_namesakes("a.py:b"),
    lambda store: store.studies.find_similar(_STUDY),
    lambda store: store.machines.latest_probe(_NODE.fingerprint()),
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


def _show(faults: list[str], out: Output) -> None:
    for fault in faults[:_FAULTS_SHOWN]:
        out.say(fault[:_LONGEST_FAULT])
    if len(faults) > _FAULTS_SHOWN:
        out.say(f"... and {len(faults) - _FAULTS_SHOWN} more")


def _parse() -> Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=500, help="of a search (500)")
    parser.add_argument("--latest-s", type=float, default=2.0, help="latest moment, in s (2)")
    parser.add_argument("--power", type=int, default=2000, help="cuts of the power (2000)")
    parser.add_argument("--transactions", type=int, default=150, help="that are cut (150)")
    parser.add_argument("--damaged", type=int, default=20_000, help="databases (20000)")
    parser.add_argument("--processes", type=int, default=2, help="that try them (2)")
    parser.add_argument("--seed", type=int, default=0, help="of everything (0)")
    return parser.parse_args()


if __name__ == "__main__":
    run_bench(main)

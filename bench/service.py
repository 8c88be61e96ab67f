"""Time of every page of the service with 10,000 trials, and what 50 readers cost a search.

Stores 10,000 trials, 500 plans and 200 trainings of an imagined lab, and asks `ddlplan serve` for
every page over HTTP. Then a search computes on all cores and writes, in turns with readers that
follow pages of it and without.
"""

from __future__ import annotations

import http.client
import random
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psutil
from _block import BenchError, Ddlplan, Output, Result, begin, make_parser, percentile, run_bench
from _service_load import Address, Readers, StandInSearch
from imagined_lab import FULL, fill
from store_cases import trial
from training_samples import JOB

from planner.plans.stored_plan import utc_now
from planner.service.site import PAGES
from planner.store import Store
from probes.cpu import read_cpu
from probes.timing import paired_ratio

_REPEATS, _READERS, _TURN_S = 30, 50, 8.0
"""Of each page, beside the search, and of its turn."""

_MOST_S, _MOST_BYTES, _MOST_LOSS = 0.15, 200_000, 0.01
_NUMBERS = {
    "/machines/{id}": FULL.machines,
    "/studies/{id}": FULL.studies,
    "/plans/{id}": FULL.plans,
    "/trainings/{id}": FULL.trainings,
    "/jobs/{id}": FULL.jobs,
}
_QUERIES = {
    "/compare": ["?plan=3&plan=9&plan=14", "?training=7&training=8", "?machine=1&machine=2"],
    "/search": ["?name=atlas", "?name=big"],
    "/hosts": ["", "?use_case=simplebig"],
    "/papers": ["", "?plot=lerat-simplebig-use", "?plot=lerat-complexsmall-use"],
}


def main() -> int:
    """Measure and show."""
    parser = make_parser(__doc__, rounds=(20, "of two turns"))
    parser.add_argument("--no-readers", action="store_true", help="only time the pages")
    arguments, out = begin(parser)
    with Ddlplan.in_own_folder() as ddlplan:
        _fill(ddlplan.database, out)
        with _serving(ddlplan) as (address, server):
            results = _time_pages(address)
            out.show(results)
            if not arguments.no_readers:
                more = _read_beside_search(ddlplan, address, server, arguments.rounds)
                out.show(more)
                results += more
    return out.conclude(results)


def _fill(db: Path, out: Output) -> None:
    """Store the lab: in memory where that is possible, as each write waits for the disk."""
    began_s = time.monotonic()
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        made = Path(folder, "planner.db")
        fill(made, replace(FULL, now=utc_now()))
        db.touch(mode=0o600)
        shutil.copyfile(made, db)
    size = db.stat().st_size / 2**20
    out.say(
        f"{FULL.trials} trials, {FULL.plans} plans and {FULL.trainings} trainings: {size:.0f} MiB"
    )
    out.say(f"stored in {time.monotonic() - began_s:.0f} s")


@contextmanager
def _serving(ddlplan: Ddlplan) -> Iterator[tuple[Address, psutil.Process]]:
    token = secrets.token_urlsafe(32)
    file = ddlplan.folder / "token"
    file.touch(mode=0o600)
    file.write_text(token)
    words = ("serve", "--token-file", file)
    process = ddlplan.start(*words, output=subprocess.PIPE, variables={"PYTHONUNBUFFERED": "1"})
    try:
        assert process.stdout is not None
        url = process.stdout.readline().decode().strip()
        if not url:
            raise BenchError(f"ddlplan serve ended with exit code {process.wait()}")
        yield Address(url=url, token=token), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _time_pages(address: Address) -> list[Result]:
    """Ask for every page, with other numbers in its address each time."""
    chosen = random.Random(0)
    parts = urlsplit(address.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    results = []
    for path in PAGES:
        times_s: list[float] = []
        sizes: list[int] = []
        for number in range(_REPEATS + 2):
            there = path.replace("{id}", str(chosen.randint(1, _NUMBERS.get(path, 1))))
            queries = _QUERIES.get(path, [""])
            began_s = time.perf_counter()
            connection.request(
                "GET",
                there + queries[number % len(queries)],
                headers={"authorization": f"Bearer {address.token}"},
            )
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != 200:
                raise BenchError(f"{there}: status {answer.status}")
            if number >= 2:  # the first ones load what pages need
                times_s.append(time.perf_counter() - began_s)
                sizes.append(len(body))
        slow_s = percentile(times_s, 0.95)
        results += [
            Result(f"{path}, median", median(times_s), "s"),
            Result(f"{path}, 95 % within", slow_s, "s", high=_MOST_S),
            Result(f"{path}, largest", float(max(sizes)), "bytes", high=_MOST_BYTES),
        ]
    connection.close()
    return results


def _read_beside_search(
    ddlplan: Ddlplan, address: Address, server: psutil.Process, rounds: int
) -> list[Result]:
    """Let a search run in turns with readers and without.

    Raises:
        BenchError: It makes no steps.
    """
    cores, db = read_cpu().usable_cores, str(ddlplan.database)
    study_id = FULL.studies
    with Store.open(db) as store:
        job_id = _add_job(store)
    readers = Readers()
    pages = ["/", f"/studies/{study_id}", f"/jobs/{job_id}", "/jobs"]
    pairs, server_s, read_s = [], 0.0, 0.0
    with StandInSearch.running(
        db, cores=cores, job_id=job_id, study_id=study_id, trial=trial(0)
    ) as search:
        search.wait_for_steps()
        for number in range(rounds):
            rates: dict[bool, float] = {}
            for is_read in (True, False) if number % 2 else (False, True):
                if not is_read:
                    rates[is_read] = search.rate(_TURN_S)
                    continue
                with readers.reading(address, pages, _READERS):
                    before, began_s = _cpu_s(server), time.monotonic()
                    rates[is_read] = search.rate(_TURN_S)
                    server_s += _cpu_s(server) - before
                    read_s += time.monotonic() - began_s
            pairs.append((rates[False], rates[True]))
        writes = max(1, search.writes.value)
        mean_s, slowest_s = search.write_us.value / writes / 1e6, search.slowest_us.value / 1e6
    return [
        Result(
            f"speed of a search without / with {_READERS} readers",
            paired_ratio(pairs),
            high=1 / (1 - _MOST_LOSS),
        ),
        Result(
            "processor time of the server with readers",
            100 * server_s / read_s / cores,
            "% of the machine",
            high=100 * _MOST_LOSS,
        ),
        Result("pages that readers got", readers.answers.value / read_s, "/s"),
        Result("errors of readers", float(readers.errors.value), high=0),
        Result("write of the search, mean", mean_s, "s"),
        Result("write of the search, slowest", slowest_s, "s"),
    ]


def _cpu_s(process: psutil.Process) -> float:
    spent = process.cpu_times()
    return float(spent.user + spent.system)


def _add_job(store: Store) -> int:
    # Elsewhere, so that its state goes by its heartbeat.
    job = store.jobs.add(replace(JOB, created_at=utc_now(), machine="elsewhere"))
    assert job.id is not None
    store.jobs.start(job.id, None)
    return job.id


if __name__ == "__main__":
    run_bench(main)

"""Ends of jobs on several hosts when something dies: who is named, how soon, what is left.

Trains on hosts of one machine, see `tests/hosts/testbed`, and at a random moment kills a random
worker, a rank, or mpirun, or cuts off a host's network. After each kill it is looked at

* how the command ends: with an exit code that is not 0;
* what it names: the host, and where there is one the signal; and no consequence of it;
* how long that takes, until no process of the job is left on any host either.

Then a training that is kept is killed again and again, gone on with, and at its end compared to one
that nobody disturbed: the weights must be the same to the last bit.

What is trained is small: it is the ends that count.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import psutil
import torch
from _block import CASES, BenchError, Ddlplan, Output, Result, begin, make_parser, run_bench
from safetensors.torch import load_file
from testbed.bed import Testbed, TestHost

from planner.cluster.links import HostLink, MeasuredLinks
from planner.store import Store

_KINDS = ("worker", "rank", "mpirun", "network")
_START_LIMIT_S = 180.0
_END_LIMIT_S = 20.0
_GIVE_UP_S = 60.0
_SLACK_S = 3.0
"""From the first epoch on: when the kill comes."""

_RESUMED_EPOCHS = 40

_CASE = f"{CASES}:TinyWithDropout"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """What came of one kill."""

    kind: str
    code: int | None
    """Exit code of the command; ``None`` where it had to be ended."""
    ended_s: float
    gone_s: float
    """Until no process was left on any host."""
    left: int
    expected: str
    error: str

    def faults(self) -> list[str]:
        """Say what was not as it must be."""
        found = []
        if self.code is None or self.code <= 0:
            found.append(f"exit code {self.code}")
        if self.expected not in self.error:
            found.append(f"said {self.error!r} in place of {self.expected!r}")
        if max(self.ended_s, self.gone_s) > _END_LIMIT_S:
            found.append(f"took {self.ended_s:.1f} s, all gone after {self.gone_s:.1f} s")
        if self.left:
            found.append(f"{self.left} processes left")
        return found


class Cluster:
    """Hosts, the command in a folder of its own, and a plan for each host."""

    def __init__(self, ddlplan: Ddlplan, bed: Testbed) -> None:
        self.bed = bed
        self.folder = ddlplan.folder
        self._ddlplan = ddlplan
        self._runs_before = 0
        self._hosts = bed.options(ddlplan.folder)
        ddlplan.run("tune", "--use-case", _CASE, "--trials", 1, "--budget", "12s")
        self._claim_fast_links()

    def start(self, *arguments: object) -> subprocess.Popen[bytes]:
        """Start a training on all hosts."""
        words = ["launch", "--use-case", _CASE, *self._hosts, "--all-hosts"]
        words += ["--global-batch", "8", "--keep-shares"]
        self._runs_before = len(self.runs())
        with (self.folder / "stderr").open("wb") as errors:
            return self._ddlplan.start(*words, *arguments, errors=errors)

    def wait_for_epoch(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until the run that was started has trained an epoch."""
        self._wait(process, "epoch", self._has_epoch)

    def wait_for_checkpoint(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        """Wait until it has kept something."""
        self._wait(process, "checkpoint", lambda: any(folder.glob("step-*")))

    def _wait(
        self, process: subprocess.Popen[bytes], what: str, is_there: Callable[[], bool]
    ) -> None:
        give_up = time.monotonic() + _START_LIMIT_S
        while not is_there():
            if time.monotonic() > give_up or process.poll() is not None:
                process.kill()
                raise BenchError(f"waited in vain for the first {what}: {self.said()}")
            time.sleep(0.05)

    def _has_epoch(self) -> bool:
        metrics = (run / "metrics.jsonl" for run in self.runs()[self._runs_before :])
        return any(file.is_file() and b"\n" in file.read_bytes() for file in metrics)

    def runs(self) -> list[Path]:
        """Give the folders of all runs, the newest last."""
        found = self.folder.glob("runs/*")
        return sorted(found, key=lambda run: int(run.name))

    def said(self) -> str:
        """Give what the command wrote to stderr."""
        return (self.folder / "stderr").read_text(errors="replace")

    def error(self) -> str:
        """Give its last word."""
        lines = [line for line in self.said().splitlines() if line.startswith("error: ")]
        return lines[-1] if lines else ""

    def _claim_fast_links(self) -> None:
        names = tuple(host.name for host in self.bed.hosts)
        links = tuple(
            HostLink(first=first, second=second, latency_s=1e-6, bytes_per_s=1e12)
            for number, first in enumerate(names)
            for second in names[number + 1 :]
        )
        with Store.open(str(self._ddlplan.database)) as store:
            (plan,) = store.plans.find()
            store.machines.save_links(
                MeasuredLinks(
                    hosts=names,
                    fingerprints=(plan.fingerprint,) * len(names),
                    measured_at=datetime.now(UTC),
                    links=links,
                )
            )


def main() -> int:
    """Kill, and show what came of it."""
    parser = make_parser(__doc__, kills=(50, "of each kind"))
    parser.add_argument("--kinds", default=",".join(_KINDS), help=f"({','.join(_KINDS)})")
    parser.add_argument("--resumes", type=int, default=20, help="how many (20)")
    arguments, out = begin(parser)
    dice = random.Random(0)
    kills: list[Kill] = []
    with Ddlplan.in_own_folder() as ddlplan, Testbed(2) as bed:
        cluster = Cluster(ddlplan, bed)
        for kind in arguments.kinds.split(","):
            for _ in range(arguments.kills):
                kill = _kill(kind, cluster, dice)
                kills.append(kill)
                verdict = "; ".join(kill.faults()) or "ok"
                out.say(
                    f"{kind:8} ended {kill.ended_s:5.1f} s, gone {kill.gone_s:5.1f} s  {verdict}"
                )
        unequal = _count_unequal(cluster, dice, arguments.resumes, out) if arguments.resumes else 0
    results = [result for kind in _KINDS for result in _conclude(kind, kills)]
    if arguments.resumes:
        figure = f"weights unequal to an undisturbed training's, of {arguments.resumes} resumes"
        results.append(Result(figure, unequal, high=0))
    return out.conclude(results)


def _kill(kind: str, cluster: Cluster, dice: random.Random) -> Kill:
    process = cluster.start("--epochs", 10**6)
    cluster.wait_for_epoch(process)
    time.sleep(dice.uniform(0, _SLACK_S))
    host = dice.choice(cluster.bed.hosts)
    expected = _strike(kind, host, cluster, process, dice)
    started = time.monotonic()
    code: int | None = None
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(_GIVE_UP_S)
    ended_s = time.monotonic() - started
    process.kill()
    process.wait()
    left = cluster.bed.left_over(patience_s=max(0.0, _END_LIMIT_S - ended_s) + 5.0)
    gone_s = time.monotonic() - started
    for pid in left:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.bed.mend(host)
    return Kill(
        kind=kind,
        code=code,
        ended_s=ended_s,
        gone_s=gone_s,
        left=len(left),
        expected=expected,
        error=cluster.error(),
    )


def _strike(
    kind: str,
    host: TestHost,
    cluster: Cluster,
    process: subprocess.Popen[bytes],
    dice: random.Random,
) -> str:
    """Kill something; give what the error must say."""
    rank = cluster.bed.hosts.index(host)
    killed = "killed by signal 9 (SIGKILL)"
    match kind:
        case "worker":
            os.kill(dice.choice(host.workers()), signal.SIGKILL)
            return f"on {host.name}: {killed}"
        case "rank":
            os.kill(host.find("launch.rank")[0], signal.SIGKILL)
            return f"{host.name}: rank {rank} was {killed}"
        case "mpirun":
            os.kill(_mpirun(process.pid), signal.SIGKILL)
            return f"mpirun was {killed}"
        case "network":
            cluster.bed.cut(host)
            return f"{host.name}: does not answer "
    raise BenchError(f"--kinds {kind}: choose of {','.join(_KINDS)}")


def _count_unequal(cluster: Cluster, dice: random.Random, resumes: int, out: Output) -> int:
    """Count the trainings that do not end as the undisturbed one does."""
    epochs = ("--epochs", _RESUMED_EPOCHS)
    whole = cluster.start(*epochs)
    if whole.wait() != 0:
        raise BenchError(cluster.said())
    expected = load_file(cluster.runs()[-1] / "weights.safetensors")
    unequal = 0
    for number in range(resumes):
        keep = ("--checkpoint", f"kept{number}", "--checkpoint-every", "1s", *epochs)
        process = cluster.start(*keep)
        cluster.wait_for_checkpoint(process, cluster.folder / f"kept{number}")
        time.sleep(dice.uniform(0, _SLACK_S))
        process.kill()
        process.wait()
        cluster.bed.left_over(patience_s=_END_LIMIT_S)
        code = cluster.start(*keep, "--resume").wait()
        if code != 0:
            out.say(f"resume {number}: exit code {code}: {cluster.error()}")
            unequal += 1
            continue
        weights = load_file(cluster.runs()[-1] / "weights.safetensors")
        is_equal = all(torch.equal(weights[name], expected[name]) for name in expected)
        unequal += not is_equal
        out.say(f"resume {number}: {'equal' if is_equal else 'NOT equal'}")
    return unequal


def _conclude(kind: str, kills: list[Kill]) -> list[Result]:
    mine = [kill for kill in kills if kill.kind == kind]
    if not mine:
        return []
    slowest_s = max(max(kill.ended_s, kill.gone_s) for kill in mine)
    return [
        Result(
            f"{kind}: faults in {len(mine)} kills",
            sum(bool(kill.faults()) for kill in mine),
            high=0,
        ),
        Result(f"{kind}: slowest end", slowest_s, "s", high=_END_LIMIT_S),
    ]


def _mpirun(owner: int) -> int:
    """Give the process of mpirun, which is prterun now, that a command has started."""
    for process in psutil.Process(owner).children():
        if process.name() == "prterun":
            return int(process.pid)
    raise BenchError("mpirun is not there")


if __name__ == "__main__":
    run_bench(main)

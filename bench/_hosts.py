"""How does a bench train on several hosts that are one machine? On the testbed of the tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "hosts"))

from _block import BenchError
from _turns import Training, Turn
from testbed.bed import Testbed, TestHost

from launch.hosts.line import Host
from launch.job import Job, NodeJob
from launch.mpi.command import mpi_command
from launch.mpi.job import MpiJob
from launch.mpi.settings import MpiSettings
from launch.plan import Plan
from launch.shares import StepTime

ALEXNET_PARAMETERS = 57_016_131
CASE = f"{Path(__file__).with_name('_alexnet_in_memory.py')}:AlexNetInMemory"
_WARMUP_STEPS = 2
_ENDLESS = 100_000
_LIMIT_S = 600.0

Trains = tuple[Sequence[TestHost], Sequence[Plan]]
"""The hosts of a job, and the plan of each."""


class Cluster:
    """The hosts of a testbed, and what is trained on them.

    Args:
        bed: Hosts that are up.
    """

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed

    def step_times_s(
        self,
        plans: Sequence[Plan],
        steps: int,
        *,
        hosts: Sequence[TestHost] | None = None,
        step_times: Sequence[StepTime] | None = None,
    ) -> list[float]:
        """Train AlexNet in one job, a node for each plan; give the times of its steps.

        Args:
            plans: Of each host, with its share of the global batch.
            steps: To be timed, after two that are not.
            hosts: Which ones; the first ones when left out.
            step_times: What is believed of each host, where shares may change.
        """
        chosen = hosts or self.bed.hosts[: len(plans)]
        times: Sequence[StepTime | None] = step_times or [None] * len(plans)
        with self._training(chosen, plans, steps + _WARMUP_STEPS, times) as training:
            done = list(training.steps())
            if training.job.wait() != 0:
                raise BenchError(training.log.read_text()[-2000:])
        return [step.time_s for step in done[_WARMUP_STEPS:]]

    @contextmanager
    def turn(self, jobs: Sequence[Trains]) -> Iterator[Turn]:
        """Start jobs without end that go on in one turn, side by side."""
        with ExitStack() as stack:
            trainings = [
                stack.enter_context(self._training(hosts, plans, _ENDLESS, [None] * len(plans)))
                for hosts, plans in jobs
            ]
            turn = Turn(trainings, warm_up=_WARMUP_STEPS)
            stack.callback(turn.close)
            yield turn

    @contextmanager
    def _training(
        self,
        hosts: Sequence[TestHost],
        plans: Sequence[Plan],
        steps: int,
        step_times: Sequence[StepTime | None],
    ) -> Iterator[Training]:
        """Start a job of so many steps."""
        with tempfile.TemporaryDirectory(prefix="ddlplan-bench-") as name:
            folder = Path(name)
            job = Job(
                use_case=CASE,
                nodes=tuple(
                    NodeJob(host=host.name, plan=plan, step_time=time)
                    for host, plan, time in zip(hosts, plans, step_times, strict=True)
                ),
                run_directory=name,
                data=name,
                keeps_shares=None in step_times,
            )
            samples = steps * sum(plan.node_batch for plan in plans)
            (folder / "samples").write_text(str(samples))
            document, log = folder / "job.json", folder / "mpirun.log"
            document.write_bytes(job.encode())
            with MpiJob(self._command(hosts, ["launch.rank", str(document)]), log) as running:
                yield Training(running, document, log)

    def add_up(self, num_bytes: int, repeats: int) -> dict[str, Any]:
        """Add up memory of a size over all hosts, with nothing beside it."""
        command = self._command(self.bed.hosts, ["_sum_rank", str(num_bytes), str(repeats)])
        ended = subprocess.run(
            command,
            env=_environment(),
            capture_output=True,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        if ended.returncode != 0:
            raise BenchError(f"exit code {ended.returncode}: {ended.stderr[-2000:]}")
        line = next(line for line in ended.stdout.splitlines() if line.startswith("{"))
        measured: dict[str, Any] = json.loads(line)
        return measured

    def iperf3_bytes_per_s(self, time_s: int = 5) -> float:
        """Give what iperf3 gets between two hosts, each way while both ways are used."""
        first, second = self.bed.hosts[:2]
        server = subprocess.Popen(
            first.command(["iperf3", "--server", "--one-off"]), stdout=subprocess.DEVNULL
        )
        try:
            words = ["iperf3", "--client", first.address, "--bidir", "--json", "--time"]
            for _ in range(50):  # it takes a moment to listen
                said = second.run([*words, str(time_s)])
                if "sum_received_bidir_reverse" in said.stdout:
                    break
                time.sleep(0.1)
            else:
                raise BenchError(f"iperf3: {said.stdout} {said.stderr}")
        finally:
            server.terminate()
            server.wait()
        ends = json.loads(said.stdout)["end"]
        both = (ends["sum_received"], ends["sum_received_bidir_reverse"])
        return min(float(one["bits_per_second"]) for one in both) / 8

    def ddp_step_times_s(self, batch_size: int, steps: int, *, channels_last: bool) -> list[float]:
        """Train AlexNet by DistributedDataParallel on the first two hosts."""
        script = Path(__file__).with_name("rivals") / "ddp_nodes.py"
        options = ["--batch-size", str(batch_size), "--steps", str(steps + _WARMUP_STEPS)]
        options += ["--channels-last"] if channels_last else []
        hosts = self.bed.hosts[:2]
        started = [
            subprocess.Popen(
                host.command([sys.executable, str(script), *options]),
                env=os.environ
                | {
                    "RANK": str(rank),
                    "WORLD_SIZE": "2",
                    "OMP_NUM_THREADS": "1",
                    "MASTER_ADDR": hosts[0].address,
                    "MASTER_PORT": "29500",
                    "GLOO_SOCKET_IFNAME": "eth0",
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank, host in enumerate(hosts)
        ]
        said = [process.communicate(timeout=_LIMIT_S) for process in started]
        if any(process.returncode for process in started):
            raise BenchError(said[0][1][-2000:])
        times: list[float] = json.loads(said[0][0].splitlines()[-1])["times_s"]
        return times[_WARMUP_STEPS:]

    def _command(self, hosts: Sequence[TestHost], program: list[str]) -> list[str]:
        settings = MpiSettings(
            ssh_config=self.bed.ssh_config,
            networks=(self.bed.network,),
            allow_root=os.geteuid() == 0,
        )
        named = [Host(name=host.name, line=line) for line, host in enumerate(hosts, start=1)]
        return mpi_command(named, program, settings, _environment(), starts_here=False)


def _environment() -> dict[str, str]:
    """Let the ranks find programs of this folder."""
    here = Path(__file__).parent
    paths = [str(here), str(here.parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}

"""Hosts of a bench: several on one machine, by the testbed of the tests."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from _block import BenchError
from _trainings import DdpTraining, JobTraining, endless_training, own_folder, rank_path
from _turns import Turn
from testbed.bed import Testbed, TestHost

from launch.hosts.host_line import Host
from launch.job import NodeJob
from launch.mpi.command import mpi_command
from launch.mpi.settings import MpiSettings
from launch.plan import Plan
from planner.cluster_tuning.reports import LinksMeasured
from probes import codec

ALEXNET_PARAMETERS = 57_016_131
_WARMUP_STEPS = 2
_DDP_PORT = 29500
"""Of one memory format, and the next one of the other: hosts have a network of their own."""

_LIMIT_S = 600.0
_ANSWER_LIMIT_S = 180.0
_END_LIMIT_S = 10.0

Trains = tuple[Sequence[TestHost], Sequence[Plan]]
"""The hosts of a job, and the plan of each."""


class Cluster:
    """The hosts of a testbed, and what is trained on them.

    Args:
        bed: Hosts that are up.
    """

    def __init__(self, bed: Testbed) -> None:
        self.bed = bed

    @contextmanager
    def turn(self, jobs: Sequence[Trains]) -> Iterator[Turn]:
        """Start jobs of ours without end that go on in one turn, side by side."""
        with ExitStack() as stack:
            trainings = [stack.enter_context(self._train(*trains)) for trains in jobs]
            turn = Turn(trainings, warm_up=_WARMUP_STEPS)
            stack.callback(turn.close)
            yield turn

    @contextmanager
    def ddp_turn(self, batch_size: int, *, channels_last: bool) -> Iterator[Turn]:
        """Start DistributedDataParallel without end on the first two hosts, for a turn of its own.

        Args:
            batch_size: Of each host.
            channels_last: Whether it has the memory format that ours has.
        """
        script = Path(__file__).with_name("_ddp_nodes.py")
        command = [sys.executable, str(script), "--batch-size", str(batch_size)]
        command += ["--channels-last"] if channels_last else []
        hosts = self.bed.hosts[:2]
        with ExitStack() as stack:
            folder = Path(stack.enter_context(own_folder()))
            said, log = folder / "times", folder / "log"
            log_file = stack.enter_context(log.open("ab"))
            started: list[subprocess.Popen[bytes]] = []
            for rank, host in enumerate(hosts):
                said_file = stack.enter_context((said if rank == 0 else log).open("ab"))
                process = subprocess.Popen(
                    host.command(command),
                    env=_ddp_environment(rank, hosts, _DDP_PORT + channels_last),
                    stdout=said_file,
                    stderr=log_file,
                )
                stack.callback(process.wait)
                stack.callback(process.kill)
                started.append(process)
            yield Turn([DdpTraining(started, said, log)], warm_up=_WARMUP_STEPS)

    def _train(
        self, hosts: Sequence[TestHost], plans: Sequence[Plan]
    ) -> AbstractContextManager[JobTraining]:
        """Start a job without end."""
        pairs = zip(hosts, plans, strict=True)
        nodes = [NodeJob(host=host.name, plan=plan) for host, plan in pairs]
        return endless_training(nodes, lambda job: self._command(hosts, ["launch.rank", job]))

    def sum_all(self, num_bytes: int, repeats: int) -> dict[str, Any]:
        """Add up memory of a size over all hosts, with nothing beside it."""
        return self._ask("_sum_rank", num_bytes, repeats)

    def measure_network(self, num_bytes: int) -> LinksMeasured:
        """Measure links and a sum of a size as `ddlplan` does."""
        measured = self._ask("_network_rank", num_bytes)
        return codec.convert(measured, LinksMeasured, source="network")

    def _ask(self, module: str, *arguments: int) -> dict[str, Any]:
        """Run ranks of a module on all hosts; give the JSON that rank 0 prints."""
        said = self.run_ranks(module, arguments)
        line = next(line for line in said.splitlines() if line.startswith("{"))
        measured: dict[str, Any] = json.loads(line)
        return measured

    def run_ranks(
        self, module: str, arguments: Sequence[object], *, limit_s: float = _LIMIT_S
    ) -> str:
        """Run ranks of a module on all hosts to their end; give what they print.

        Raises:
            BenchError: They failed, or did not come to their end in time.
        """
        command = self._command(self.bed.hosts, [module, *map(str, arguments)])
        try:
            ended = subprocess.run(
                command,
                env=_environment(),
                capture_output=True,
                text=True,
                timeout=limit_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"{module}: no end within {limit_s:g} s") from error
        if ended.returncode != 0:
            raise BenchError(f"exit code {ended.returncode}: {ended.stderr[-2000:]}")
        return ended.stdout

    @contextmanager
    def answering_ranks(
        self, module: str, *arguments: str, mca: Mapping[str, str]
    ) -> Iterator[AnsweringRanks]:
        """Start ranks of a module on all hosts that wait for requests.

        Args:
            module: Of this folder.
            arguments: Of the module.
            mca: Settings of Open MPI, in place of ours where they have the same names.
        """
        mpirun, *command = self._command(self.bed.hosts, [module, *arguments])
        for name, value in mca.items():
            if name in command:
                command[command.index(name) + 1] = value
            else:
                command = ["--mca", name, value, *command]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(
                [mpirun, *command],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
            ranks = AnsweringRanks(process, errors)
            try:
                yield ranks
            finally:
                ranks.close()

    def iperf3_bytes_per_s(self, time_s: int = 5) -> float:
        """Give what iperf3 gets between two hosts, each way while both ways are used."""
        first, second = self.bed.hosts[:2]
        server = subprocess.Popen(
            first.command(["iperf3", "--server", "--one-off"]),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # it says there that it was ended
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

    def _command(self, hosts: Sequence[TestHost], program: list[str]) -> list[str]:
        settings = MpiSettings(
            ssh_config=self.bed.ssh_config,
            networks=(self.bed.network,),
            allow_root=os.geteuid() == 0,
        )
        named = [Host(name=host.name, line=line) for line, host in enumerate(hosts, start=1)]
        return mpi_command(named, program, settings, _environment(), starts_here=False)


class AnsweringRanks:
    """Ranks of which the first answers a line of JSON with another one.

    Args:
        process: Of mpirun.
        errors: What it and the ranks write when something is wrong.
    """

    def __init__(self, process: subprocess.Popen[str], errors: TextIO) -> None:
        self._process = process
        self._errors = errors

    def ask(self, **request: object) -> Any:
        """Give the answer to a request."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # then no answer comes
            self._process.stdin.write(f"{json.dumps(request)}\n")
            self._process.stdin.flush()
        return self.listen()

    def listen(self) -> Any:
        """Give what the first rank says next.

        Raises:
            BenchError: It says nothing more.
        """
        assert self._process.stdout is not None
        speaks = select.select([self._process.stdout], [], [], _ANSWER_LIMIT_S)[0]
        if speaks and (line := self._process.stdout.readline()):
            return json.loads(line)
        self._errors.seek(0)
        raise BenchError(f"the ranks do not answer: {self._errors.read()[-2000:]}")

    def close(self) -> None:
        """Let the ranks end, or end them."""
        try:
            self._process.communicate(timeout=_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def _ddp_environment(rank: int, hosts: Sequence[TestHost], port: int) -> dict[str, str]:
    """Say to DDP who is where, as torchrun would."""
    return os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(len(hosts)),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": hosts[0].address,
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "eth0",
    }


def _environment() -> dict[str, str]:
    """Let the ranks find programs of this folder."""
    return os.environ | {"PYTHONPATH": rank_path()}

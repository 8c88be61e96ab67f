"""How is a rival started, and what does it say? Scripts in `rivals/`, as their users run them."""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from _block import BenchError, Ddlplan

_SCRIPTS = Path(__file__).with_name("rivals")
_PROCESSES = 2
_END_S = 30.0

# Where a variable is set it is no default any more; the others are those of a job around us.
_LEFT_OUT = ("OMP_", "MKL_", "KMP_", "GOMP_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "ACCELERATE_")


class RivalFailedError(BenchError):
    """A rival ended with an error, or did not train as it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a rival is told; ``None`` leaves it at its default."""

    data: Path
    """Folder with one sub-folder per class."""

    epochs: int

    node_batch: int
    """Samples of a step over all processes."""

    loader_workers: int
    """Of each process."""

    processes: int | None = None
    """Of rivals that have several."""

    threads: int | None = None
    """Over all processes."""

    channels_last: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A library that trains, with the script that uses it."""

    name: str
    script: str

    module: str
    """What must be importable."""

    distribution: str
    """Package that it comes from."""

    start: Callable[[int, Path], list[str]]
    """Gives the command in front of the script, for a number of processes and a scratch folder."""

    is_parallel: bool
    """Whether it trains in several processes."""

    tells_script: bool = False
    """Whether the script itself starts the processes."""

    @property
    def version(self) -> str | None:
        """Version of the package, ``None`` where it is not installed."""
        try:
            return version(self.distribution)
        except PackageNotFoundError:
            return None

    def find_problem(self, ddlplan: Ddlplan) -> str | None:
        """Say why it cannot be used, ``None`` where it can. Imports it, in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-c", f"import {self.module}"],
            cwd=ddlplan.folder,
            env=_environment(ddlplan),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        last = (done.stderr.splitlines() or ["no message"])[-1]
        return None if done.returncode == 0 else last

    def train(self, setting: Setting, num_photos: int, ddlplan: Ddlplan) -> float:
        """Train; give samples per second of the epochs from the second on.

        Raises:
            BenchError: The batch cannot be shared out evenly.
            RivalFailedError: It failed, or did not train as it was told.
        """
        processes = (setting.processes or _PROCESSES) if self.is_parallel else 1
        if setting.node_batch % processes:
            raise BenchError(f"batch {setting.node_batch} and {processes} processes: uneven shares")
        command = [
            *self.start(processes, ddlplan.folder),
            str(_SCRIPTS / self.script),
            *("--data", str(setting.data)),
            *("--epochs", str(setting.epochs)),
            *("--batch-size", str(setting.node_batch // processes)),
            *("--loader-workers", str(setting.loader_workers)),
            *(("--processes", str(processes)) if self.tells_script else ()),
            *(("--channels-last",) if setting.channels_last else ()),
        ]
        environment = _environment(ddlplan)
        if setting.threads is not None:
            environment["OMP_NUM_THREADS"] = str(max(1, setting.threads // processes))
        said = _run(command, ddlplan.folder, environment)
        epochs = [json.loads(line) for line in said.splitlines() if line.startswith('{"epoch"')]
        trained = {(e["samples"], e["processes"]) for e in epochs}
        if len(epochs) != setting.epochs or trained != {(num_photos, processes)}:
            raise RivalFailedError(f"{self.name} said of {setting}, {processes} processes:\n{said}")
        if not all(math.isfinite(epoch["loss"]) for epoch in epochs):
            raise RivalFailedError(f"{self.name}: the loss is no number:\n{said}")
        steady = epochs[1:] or epochs
        return num_photos * len(steady) / math.fsum(epoch["time_s"] for epoch in steady)


def _python(_processes: int, _folder: Path) -> list[str]:
    return [sys.executable]


def _torchrun(processes: int, _folder: Path) -> list[str]:
    run = [sys.executable, "-m", "torch.distributed.run"]
    return [*run, "--standalone", "--nproc-per-node", str(processes)]


def _accelerate(processes: int, folder: Path) -> list[str]:
    """Give the command of Accelerate's guide for several CPU processes, which has mpirun run."""
    hosts = folder / "hosts"
    hosts.write_text(f"localhost slots={processes}\n")
    return [
        *(sys.executable, "-m", "accelerate.commands.launch"),
        *("--cpu", "--num_processes", str(processes), "--num_machines", "1"),
        *("--mpirun_hostfile", str(hosts), "--main_process_port", str(_free_port())),
    ]


def _mpirun(processes: int, _folder: Path) -> list[str]:
    """Give the command of Horovod's guide."""
    return ["mpirun", "-n", str(processes), "--bind-to", "none", "--map-by", "slot", sys.executable]


RIVALS = (
    Rival(
        name="plain PyTorch",
        script="plain_pytorch.py",
        module="torch",
        distribution="torch",
        start=_python,
        is_parallel=False,
    ),
    Rival(
        name="torchrun DDP",
        script="torchrun_ddp.py",
        module="torch.distributed.run",
        distribution="torch",
        start=_torchrun,
        is_parallel=True,
    ),
    Rival(
        name="Accelerate",
        script="hf_accelerate.py",
        module="accelerate",
        distribution="accelerate",
        start=_accelerate,
        is_parallel=True,
    ),
    Rival(
        name="Lightning",
        script="lightning_trainer.py",
        module="lightning.pytorch",
        distribution="lightning",
        start=_python,
        is_parallel=False,
    ),
    Rival(
        name="Lightning DDP",
        script="lightning_trainer.py",
        module="lightning.pytorch",
        distribution="lightning",
        start=_python,
        is_parallel=True,
        tells_script=True,
    ),
    Rival(
        name="Horovod",
        script="horovod_mpi.py",
        module="horovod.torch",
        distribution="horovod",
        start=_mpirun,
        is_parallel=True,
    ),
)


def _environment(ddlplan: Ddlplan) -> dict[str, str]:
    """Give variables that leave the defaults alone and let processes find one another."""
    kept = {
        name: value
        for name, value in ddlplan.environment().items()
        if not name.startswith(_LEFT_OUT)
    }
    beside = str(Path(sys.executable).parent)
    kept |= {
        "PATH": f"{beside}{os.pathsep}{kept.get('PATH', os.defpath)}",  # for mpirun
        "GLOO_SOCKET_IFNAME": "lo",  # the host's own name may not resolve
        "HF_HOME": str(ddlplan.folder / "huggingface"),  # no settings of the user's
    }
    if os.geteuid() == 0:  # as `root_option` for ddlplan
        kept |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return kept


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """Run a command to its end, and leave none of its processes behind; give what it printed."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, complained = process.communicate()
        finally:
            _end(process)
    if process.returncode != 0:
        tail = "\n".join(complained.splitlines()[-20:])
        raise RivalFailedError(f"exit code {process.returncode} of {' '.join(command)}\n{tail}")
    return said


def _end(process: subprocess.Popen[str]) -> None:
    """End what still runs. Launchers that are asked to end their workers, so they are given time.

    A launcher may itself have been started by another one, which is gone before it.
    """
    deadline_s = time.monotonic() + _END_S
    number: int = signal.SIGTERM
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline_s:
            os.killpg(process.pid, number)
            number = 0
            process.poll()
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

"""What the tests of the launch floor share: a fork server, two cores, tiny use cases."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from strategy_homes import home  # noqa: F401 - a fixture
from worker_groups import first_failure

from launch.case_facts import CaseFacts
from launch.plan import Plan
from launch.workers.fork_server import ForkServer
from launch.workers.fork_server_pool import ForkServerPool
from launch.workers.group import (
    ReportReceived,
    WorkerEvent,
    WorkerFailure,
    WorkerGroup,
    explain_failure,
)
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
from probes.hardware import CoreLimit, Cpu, Gpu, Hardware, Memory
from probes.node import probe

TINY = Path(__file__).parent / "cases/tiny_cases.py"
SEED = 7


def long(case: str) -> Any:
    """A case that finds little that the others miss."""
    return pytest.param(case, marks=pytest.mark.long)


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServerPool]:
    """Fork servers that all tests use but those that end one: loading torch takes seconds."""
    with pytest.MonkeyPatch.context() as environment:
        # They start before any test has its own surroundings, and workers have those of the start.
        environment.setenv("DDLPLAN_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        with ForkServerPool() as started:
            started.get().wait_until_ready()
            yield started


@pytest.fixture(scope="session")
def server(servers: ForkServerPool) -> ForkServer:
    return servers.get()


@pytest.fixture(scope="session")
def two_cores() -> Hardware:
    """A node of two cores; where the machine has one only, both are that one."""
    usable = sorted(os.sched_getaffinity(0))
    cores = (usable[0], usable[-1])
    cpu = Cpu(
        architecture="x86_64",
        logical_cores=2,
        usable_cores=2,
        core_ids=cores,
        limits=(CoreLimit(source="test", cores=2),),
    )
    return Hardware(node="test", cpu=cpu, memory=Memory(total_bytes=2**33, usable_bytes=2**33))


@pytest.fixture(scope="session")
def three_cores(two_cores: Hardware) -> Hardware:
    """A node of three cores, all of which are one of this machine's."""
    core_ids = two_cores.cpu.core_ids[:1] * 3
    return replace(
        two_cores, cpu=replace(two_cores.cpu, logical_cores=3, usable_cores=3, core_ids=core_ids)
    )


@pytest.fixture(scope="session")
def gpu_node(two_cores: Hardware) -> Hardware:
    """A node of four cores, all of which are this machine's two, and of four imagined GPUs."""
    core_ids = two_cores.cpu.core_ids * 2
    return replace(
        two_cores,
        cpu=replace(two_cores.cpu, logical_cores=4, usable_cores=4, core_ids=core_ids),
        gpus=tuple(
            Gpu(nvml_index=i, cuda_index=i, name="imagined", uuid=f"GPU-{i}") for i in range(4)
        ),
    )


@pytest.fixture(scope="session")
def nodes(two_cores: Hardware, gpu_node: Hardware) -> list[Hardware]:
    """Nodes with ever more to offer."""
    two_gpus = replace(two_cores, gpus=gpu_node.gpus[:2])
    return [two_cores, two_gpus, replace(gpu_node, gpus=()), gpu_node]


@pytest.fixture(scope="session")
def this_node() -> Hardware:
    """The machine as it is; nothing in it touches a GPU."""
    return probe(quick=True)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Let torch compute with one thread here.

    Threads of OpenMP that wait for one another beside other tests take three times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def training_on_four(server: ForkServer, gpu_node: Hardware, tmp_path: Path) -> Training:
    return Training(server, gpu_node, tmp_path)


@pytest.fixture(scope="session")
def tiny_facts() -> CaseFacts:
    return CaseFacts(
        default_batch=8,
        train_samples=160,
        validation_samples=10,
        parameter_count=1,
        parameter_bytes=4,
        max_stages=8,
        digest="sha256:0",
        batch_choices=(8, 16),
    )


class Training:
    """Runs a plan's workers to their end and keeps what they said."""

    def __init__(self, server: ForkServer, node: Hardware, directory: Path) -> None:
        self._server = server
        self._node = node
        self._directory = directory
        self.events: list[WorkerEvent] = []

    def run(
        self, plan: Plan, case: str, *, epochs: int = 1, file: Path = TINY, **changes: object
    ) -> dict[str, object]:
        """Train and return the weights."""
        weights = self._directory / "weights.safetensors"
        task = Task(
            purpose=Purpose.TRAIN,
            workload=Workload(use_case=f"{file}:{case}", seed=SEED),
            plan=plan,
            epochs=epochs,
            weights=str(weights),
        )
        with self.start(replace(task, **changes)) as group:  # type: ignore[arg-type]
            while event := group.next_event():
                failure = explain_failure(group, event)
                assert failure is None, f"{failure.message}\n{failure.log_tail}"
                self.events.append(event)
        return load_file(weights)

    def start(self, task: Task) -> WorkerGroup:
        assert task.plan is not None
        return self.start_tasks(make_worker_tasks(task, self._node.cpu.core_ids))

    def start_tasks(self, tasks: list[Task]) -> WorkerGroup:
        group = WorkerGroup(self._server, tasks, self._directory)
        group.permit_steps(10**6)  # as many as a trial could want
        return group

    def failure_of(self, case: str, plan: Plan, **changes: object) -> WorkerFailure:
        """Run workers until one fails."""
        with self.start(self.task(case, plan, **changes)) as group:
            return first_failure(group)

    def reports(self, kind: type) -> list[object]:
        """Give what was reported of one kind."""
        said = [event.report for event in self.events if isinstance(event, ReportReceived)]
        return [report for report in said if isinstance(report, kind)]

    def task(self, case: str, plan: Plan, **changes: object) -> Task:
        task = Task(
            purpose=Purpose.TIME, workload=Workload(use_case=f"{TINY}:{case}", seed=SEED), plan=plan
        )
        return replace(task, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def trained_pair(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Any]:
    """Give the outcome of a job of two nodes by the names of its file and of itself."""
    from jobs_of_nodes import pairs_trained_when_asked  # which needs what is above

    return pairs_trained_when_asked(tmp_path_factory.mktemp("pairs"))


@pytest.fixture(scope="session")
def trained_apart(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Any]:
    """Give the outcome of the jobs of as many nodes whose ranks have folders of their own."""
    from jobs_of_nodes import apart_trained_when_asked  # which needs what is above

    return apart_trained_when_asked(tmp_path_factory.mktemp("apart"))


@pytest.fixture
def training_on(server: ForkServer, tmp_path: Path) -> Callable[[Hardware], Training]:
    return lambda node: Training(server, node, tmp_path)


@pytest.fixture
def training(server: ForkServer, two_cores: Hardware, tmp_path: Path) -> Training:
    return Training(server, two_cores, tmp_path)


@pytest.fixture
def training_on_three(server: ForkServer, three_cores: Hardware, tmp_path: Path) -> Training:
    return Training(server, three_cores, tmp_path)

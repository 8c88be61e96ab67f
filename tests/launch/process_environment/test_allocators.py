"""Workers get their memory from the library that their plan names, or not at all."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import pytest

from launch.errors import InvalidPlanError
from launch.plan import Plan
from launch.process_environment.allocators import (
    allocator_environment,
    find_allocators,
    set_allocator,
)
from launch.workers.fork_server import ForkServer
from launch.workers.fork_server_pool import ForkServerPool
from launch.workers.group import WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task
from launch.workload import Workload

HERE = find_allocators()
LIBRARIES = ["jemalloc", "tcmalloc"]


def plan_with(allocator: str) -> Plan:
    return Plan(strategy="sequential", node_batch=2, allocator=allocator)


def needs(allocator: str) -> None:
    if allocator not in HERE:
        pytest.skip(f"no library of {allocator} on this machine")


@pytest.mark.parametrize("allocator", LIBRARIES)
def test_a_worker_runs_with_the_library_of_its_plan(allocator, tmp_path):
    needs(allocator)
    case, maps = tmp_path / "case.py", tmp_path / "maps"
    case.write_text(
        "from pathlib import Path\n"
        "import torch\n"
        "class Case:\n"
        "    name, default_batch = 'maps', 2\n"
        "    def model(self): return torch.nn.Linear(2, 1)\n"
        "    def dataset(self, data, *, train):\n"
        "        return [(torch.zeros(2), torch.zeros(1))] * 4\n"
        "    def loss(self, output, target):\n"
        f"        Path({str(maps)!r}).write_text(Path('/proc/self/maps').read_text())\n"
        "        return output.mean()\n"
        "    def optimizer(self, parameters): return torch.optim.SGD(parameters, lr=0.1)\n"
    )
    plan = Plan(strategy="sequential", node_batch=2, allocator=allocator)
    task = Task(purpose=Purpose.TRAIN, workload=Workload(use_case=f"{case}:Case"), plan=plan)
    with ForkServer(allocator) as server, WorkerGroup(server, [task], tmp_path) as group:
        while event := group.next_event(60):
            failure = explain_failure(group, event)
            assert failure is None, failure.message
    assert str(HERE[allocator].resolve()) in maps.read_text()


def test_a_worker_without_the_library_of_its_plan_fails(training):
    """The loader only prints that it leaves a library out, and the plan would be another one."""
    plan = Plan(strategy="sequential", node_batch=8, allocator="jemalloc")
    with training.start(training.task("Sgd", plan)) as group:
        failure = explain_failure(group, group.next_event(120))
    assert failure.error == "InvalidPlanError"
    assert "allocator=jemalloc and a loader that left it out" in failure.message


def test_files_in_memory_may_have_names_that_are_no_text(tmp_path):
    """The story: in a folder with such a name, every worker ended with a UnicodeDecodeError."""
    with (tmp_path / os.fsdecode(b"caf\xe9")).open("w+b") as file:
        file.truncate(mmap.PAGESIZE)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE):
            set_allocator("default")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that alone is looked into."""
    monkeypatch.setattr(
        "launch.process_environment.allocators._library_folders", lambda _: [tmp_path]
    )
    return tmp_path


def header(**changes: int) -> bytes:
    own = bytearray(Path(sys.executable).resolve().read_bytes()[:64])
    for offset, value in changes.items():
        own[int(offset.removeprefix("byte"))] = value
    return bytes(own)


def test_a_library_is_found_by_its_file(folder):
    (folder / "libtcmalloc.so.4").write_bytes(header())
    (folder / "libtcmalloc_minimal.so.4").write_bytes(header())
    assert find_allocators() == {"tcmalloc": folder / "libtcmalloc_minimal.so.4"}


@pytest.mark.parametrize(
    "content", [b"", b"GROUP ( AS_NEEDED )", header(byte4=1), header(byte18=8)]
)
def test_a_file_that_the_loader_would_refuse_is_passed_over(content, folder):
    (folder / "libjemalloc.so.2").write_bytes(content)
    assert find_allocators() == {}


def test_a_users_own_folders_come_first(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libjemalloc.so.2").write_bytes(header())
    found = find_allocators({"CONDA_PREFIX": str(tmp_path)})
    assert found["jemalloc"] == tmp_path / "lib" / "libjemalloc.so.2"


def test_a_missing_library_is_one_line(folder):
    with pytest.raises(InvalidPlanError, match=r"allocator=tcmalloc and no library .*: install"):
        ForkServer("tcmalloc")


def test_what_the_user_preloads_is_loaded_too(folder):
    (folder / "libjemalloc.so.2").write_bytes(header())
    environment = allocator_environment("jemalloc", {"LD_PRELOAD": "/lib/own.so"})
    assert environment["LD_PRELOAD"] == f"{folder}/libjemalloc.so.2 /lib/own.so"
    assert "background_thread" not in environment["MALLOC_CONF"]


@pytest.mark.parametrize("allocator", ["default", "retain"])
def test_allocators_of_the_c_library_are_not_preloaded(allocator):
    assert allocator_environment(allocator) == {}


@pytest.mark.long
def test_one_server_is_started_for_each_library():
    with ForkServerPool() as servers:
        assert servers.get(plan_with("retain")) is servers.get(plan_with("default"))
        assert servers.get(plan_with("default")) is servers.get()
        for allocator in HERE:
            plan = plan_with(allocator)
            assert servers.get(plan) is servers.get(plan) is not servers.get()
        servers.end(plan_with("default"))
        ended = servers.get()
        assert not ended.is_gone()
    assert ended.is_gone()

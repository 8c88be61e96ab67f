"""How workers end: in order, by a fault of their own, or because somebody goes."""

from __future__ import annotations

import errno
import os
import re
import resource
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from worker_groups import count_oom_kills, first_failure, wait_until_gone

from launch.errors import LaunchError
from launch.plan import Plan
from launch.reports import StepDone
from launch.workers.fork_server import ForkServer, worker_environment
from launch.workers.group import ReportReceived, WorkerEnded, WorkerGroup
from launch.workers.log import involves_loaders, lacks_shared_memory, tells_out_of_memory
from launch.workers.task import Purpose, Task
from launch.workload import Workload

ALONE = Plan(strategy="sequential", node_batch=8)
THREADS = Plan(strategy="threads", node_batch=8, replicas=2, threads_per_process=2)
PAIR = Plan(strategy="processes", node_batch=8, processes=2, replicas=2, devices=("cpu", "cpu"))
RAISED = r"ArithmeticError: the loss is beyond me \(/.*/tiny/failing\.py, line \d+\)"


def test_workers_may_need_more_files_than_a_shell_lets_open(training):
    """The story: two plans side by side on 128 cores needed more than 1024: the search ended."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(2)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, limits[1]))
    try:
        assert re.fullmatch(RAISED, training.failure_of("Raises", PAIR).message)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_group_for_which_no_descriptor_is_left_leaves_none_open(server, tmp_path, monkeypatch):
    """The story: its selector stayed open, and the first of those that workers share."""

    def fail(*_):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "eventfd", fail)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="Too many open files") as raised:
        WorkerGroup(server, [], tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before, raised


def test_group_for_which_a_second_pipe_cannot_be_opened_leaves_the_first_closed(
    server, tmp_path, monkeypatch
):
    """The story: the end of the first one that a worker writes to stayed open."""
    open_pipe, ends = os.pipe, []

    def open_one():
        if ends:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        ends.extend(open_pipe())
        return tuple(ends)

    monkeypatch.setattr(os, "pipe", open_one)
    task = Task(purpose=Purpose.DESCRIBE, workload=Workload(use_case="unread"))
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="Too many open files"):
        WorkerGroup(server, [task], tmp_path)
    assert ends
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_use_case_that_calls_sys_exit_fails_with_its_words_and_the_users_line(training):
    """The story: the worker ended with exit code 70, and its log was empty."""
    failure = training.failure_of("Exits", ALONE)
    said = r"SystemExit: there is no loss \(/.*/tiny/failing\.py, line \d+\)"
    assert re.fullmatch(said, failure.message)


def test_worker_that_cannot_begin_says_why(training):
    """The story: what none of its code expects was exit code 70, and an empty log."""
    failure = training.failure_of("Sgd", ALONE, purpose="rest")
    assert failure.message == "exit code 70"
    assert "InvalidDocumentError: task: " in failure.log_tail


def test_log_that_cannot_be_opened_leaves_no_file_open(training, server, tmp_path):
    """The story: the logs of the workers before it stayed open, for as long as a search goes on."""
    server.wait_until_ready()
    (tmp_path / "worker1.log").mkdir()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(IsADirectoryError):
        training.start(training.task("Hangs", PAIR))
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_task_of_a_job_of_thousands_of_hosts_reaches_its_worker(training):
    """The story: beyond 64 KiB it was cut off: the worker ended with exit code 70, and no word.

    Beyond 208 KiB it was not sent at all: "Message too long". This one leaves by itself, without a
    word, which is a failure too.
    """
    domain = f"{'long-' * 10}name.cluster.example.org"
    hosts = tuple(f"node-{number:04}.{domain}" for number in range(4096))
    assert training.failure_of("Leaves", ALONE, hosts=hosts).message == "exit code 3"


@pytest.mark.parametrize("plan", [ALONE, PAIR], ids=lambda p: p.strategy)
@pytest.mark.parametrize("purpose", [Purpose.TIME, Purpose.TRAIN])
def test_worker_that_ends_well_before_its_work_is_done_is_a_failure(plan, purpose, training):
    """The story: a trial asked for events of no one until its time was up, and a launch waited
    for ever for a worker that waited for the one that had gone."""
    failure = training.failure_of("LeavesQuietly", plan, purpose=purpose)
    assert failure.worker == 0
    assert failure.message.startswith("ended with exit code 0 before its work was done: ")


def test_signals_that_are_meant_for_a_rank_end_no_worker(training):
    """The story: Slurm sent SIGUSR2 to all processes of a step, and none was left to train."""
    with training.start(training.task("Sgd", ALONE, purpose=Purpose.TIME)) as group:
        (pid,) = group.pids
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            for target in (psutil.Process(pid).ppid(), pid):
                os.kill(target, number)
        steps = 0
        while steps < 3:
            match group.next_event(120):
                case ReportReceived(report=StepDone()):
                    steps += 1
                case WorkerEnded() | None as event:
                    pytest.fail(f"no step, but {event}")


@pytest.mark.parametrize("plan", [ALONE, THREADS, PAIR], ids=lambda p: p.strategy)
def test_leaving_the_block_ends_workers_that_hang(plan, training):
    with training.start(training.task("Hangs", plan)) as group:
        pids = group.pids
        assert len(pids) == plan.processes
        assert group.next_event(0.5) is None
    wait_until_gone(pids)


def test_ends_of_workers_are_awaited_without_asking_in_a_loop(training, server, monkeypatch):
    """The story: pipes of workers that had ended were news for ever, so that a core was busy."""
    asked, take_exits = [], server.take_exits
    monkeypatch.setattr(server, "take_exits", lambda pids: (asked.append(1), take_exits(pids))[1])
    group = training.start(training.task("Hangs", ALONE))
    os.kill(server.pid, signal.SIGSTOP)
    threading.Timer(0.4, os.kill, [server.pid, signal.SIGCONT]).start()
    group.stop()
    assert not group.pids
    assert len(asked) < 10  # it was thousands


def test_processes_that_a_worker_started_end_with_it(training):
    with training.start(training.task("LeavesChild", ALONE)) as group:
        (pid,) = group.pids
        first_failure(group)
    wait_until_gone(group_of_processes(pid))


def group_of_processes(leader: int) -> list[int]:
    return [pid for pid in psutil.pids() if _group_of(pid) == leader]


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


@pytest.mark.parametrize(
    "said",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB.",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_libraries_of_a_gpu_have_words_of_their_own_for_a_lack_of_memory(said):
    """The story: beside a plan that filled the GPU, another was called one that crashes."""
    assert tells_out_of_memory(said)
    assert not involves_loaders(said)


LOADED = replace(ALONE, loader_workers=2)
REMEDY = (
    "use fewer loader workers or a smaller batch, or start the container with --shm-size=8g or "
    "--ipc=host"
)


@pytest.mark.parametrize(
    ("case", "found"),
    [
        (
            "LosesLoaders",
            "a loading process killed by SIGBUS, as it is where /dev/shm has no room left",
        ),
        ("FindsNoRoom", "no room left in /dev/shm"),
    ],
)
def test_batches_for_which_shared_memory_has_no_room_are_a_lack_of_memory(case, found, training):
    """The story: 16 loading processes with large batches were a plan that crashes, by an error that
    said only that one of them had ended."""
    failure = training.failure_of(case, LOADED)
    settings = "loader_workers=2, node_batch=8"
    assert failure.message == f"SharedMemoryError: {settings} and {found}: {REMEDY}"
    assert failure.out_of_memory


def test_full_shared_memory_is_no_matter_of_loader_workers_where_a_plan_has_none(training):
    """The story: NCCL's lack of it came with ``loader_workers=0``, and "use fewer" of them."""
    said = training.failure_of("FindsNoRoomForNccl", ALONE).message
    remedy = REMEDY.partition(", or ")[2]
    assert said == f"SharedMemoryError: no room left in /dev/shm: {remedy}"


@pytest.mark.parametrize("oom_kills", [0, 1])
def test_loading_process_that_the_kernel_killed_for_memory_is_a_lack_of_it(
    oom_kills, training, monkeypatch
):
    """The story: only a worker that was killed itself was one."""
    count_oom_kills(monkeypatch, oom_kills)
    failure = training.failure_of("LosesKilledLoaders", LOADED)
    assert "is killed by signal: Killed" in failure.message
    assert failure.out_of_memory == bool(oom_kills)
    assert involves_loaders(failure.message)


def test_worker_that_the_kernel_killed_may_have_lost_memory_to_loading_processes(
    training, monkeypatch
):
    count_oom_kills(monkeypatch, 1)
    with training.start(training.task("Hangs", LOADED)) as group:
        (pid,) = group.pids
        os.kill(pid, signal.SIGKILL)
        failure = first_failure(group)
    assert failure.message == "killed by signal 9 (SIGKILL) (out of memory)"
    assert involves_loaders(failure.message)


@pytest.mark.parametrize(
    ("said", "is_full"),
    [
        ("creating shared memory segment /dev/shm/nccl-Ab3: No space left on device (28)", True),
        ("attaching to shared memory segment /dev/shm/nccl-Ab3: No such file or directory", False),
        ("out of resource: shared memory, Required: 262144, Hardware limit: 232448", False),
    ],
)
def test_nccl_says_by_a_file_of_its_own_that_shared_memory_is_full(said, is_full):
    assert lacks_shared_memory(f"ncclSystemError: System call failed.\nError: {said}") is is_full


def test_what_a_worker_said_comes_before_its_end(training):
    task = training.task("Sgd", PAIR, purpose=Purpose.TRAIN)
    with training.start(task) as group:
        events = []
        while event := group.next_event():
            events.append(event)
    assert [event.code for event in events if isinstance(event, WorkerEnded)] == [0, 0]
    for worker in range(2):
        mine = [event for event in events if event.worker == worker]
        assert isinstance(mine[-1], WorkerEnded)
        assert all(isinstance(event, ReportReceived) for event in mine[:-1])


def test_last_report_and_end_may_wait_at_the_same_time(training, server):
    """Found by launches that failed at random with a KeyError: the end was taken first, the
    worker's pipe closed with it, and then read. What is said has the line of the user's code."""
    with training.start(training.task("Raises", ALONE)) as group:
        wait_until_gone(group.pids)
        assert select.select([server], [], [], 60)[0]
        failure = first_failure(group)
    assert re.fullmatch(RAISED, failure.message)
    assert "failing.py" in failure.log_tail


def test_every_step_is_reported_once_by_worker_0(training):
    training.run(PAIR, "Sgd", epochs=2)
    steps = training.reports(StepDone)
    assert [step.step for step in steps] == list(range(40))
    assert {step.samples for step in steps} == {8}


def test_workers_stay_on_disjoint_cores_and_never_load_mpi4py(training, two_cores):
    with training.start(training.task("Sgd", PAIR)) as group:
        while not isinstance(getattr(group.next_event(), "report", None), StepDone):
            pass
        expected = [{core} for core in two_cores.cpu.core_ids]
        assert [os.sched_getaffinity(pid) for pid in group.pids] == expected
        for pid in group.pids:
            assert "mpi4py" not in Path(f"/proc/{pid}/maps").read_text()


def test_variables_of_an_mpi_job_do_not_reach_workers():
    cleaned = worker_environment({"OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0", "HOME": "/h"})
    assert "HOME" in cleaned
    assert not any(name.startswith(("OMPI_", "PMIX_")) for name in cleaned)


def test_variables_that_pin_threads_do_not_reach_workers():
    """The story: OMP_PROC_BIND=true in a cluster's profile bound every worker to the same core."""
    pinning = {
        "OMP_PROC_BIND": "true",
        "OMP_PLACES": "cores",
        "OMP_PLACES_DEV": "cores",
        "GOMP_CPU_AFFINITY": "0",
        "KMP_AFFINITY": "compact",
        "OMP_THREAD_LIMIT": "1",
        "OMP_NUM_THREADS_ALL": "1",
        "MKL_NUM_THREADS": "1",
    }
    cleaned = worker_environment({**pinning, "OMP_NUM_THREADS": "64", "KMP_BLOCKTIME": "0"})
    assert not pinning.keys() & cleaned.keys()
    assert cleaned["OMP_NUM_THREADS"] == "1"
    assert cleaned["KMP_BLOCKTIME"] == "0"


def test_fork_server_stays_at_one_thread(server):
    server.wait_until_ready()
    assert psutil.Process(server.pid).num_threads() == 1


_TINY = Path(__file__).parents[1] / "cases/tiny_cases.py"

_OWNER = f"""
import sys, time
from pathlib import Path
from launch.plan import Plan
from launch.workers.fork_server import ForkServer
from launch.workers.group import WorkerGroup
from launch.workers.task import Purpose, Task, make_worker_tasks
from launch.workload import Workload
plan = Plan(strategy="sequential", node_batch=8)
keeps = Task(purpose=Purpose.TIME, workload=Workload(use_case="{_TINY}:KeepsChild"), plan=plan)
leaves = Task(purpose=Purpose.TIME, workload=Workload(use_case="{_TINY}:Leaves"), plan=plan)
plan = Plan(strategy="processes", node_batch=8, processes=2, replicas=2, devices=("cpu", "cpu"))
task = Task(purpose=Purpose.TIME, workload=Workload(use_case="{_TINY}:Sgd"), plan=plan)
two, logs = make_worker_tasks(task, (0, 0)), Path(sys.argv[1])
with (
    ForkServer() as server,
    WorkerGroup(server, two, logs, log_prefix="pair-") as pair,
    WorkerGroup(server, [keeps], logs) as group,
):
    others = WorkerGroup(server, [leaves], logs) if sys.argv[2:] else group
    for started in (group, others):
        started.permit_steps(9)
    print(server.pid, *group.pids, *others.pids, *pair.pids, flush=True)
    time.sleep(3600)
"""


@pytest.mark.parametrize(
    "unread",
    [pytest.param([], marks=pytest.mark.long), ["unread"]],
    ids=["all read", "an end unread"],
)
def test_workers_and_what_they_have_started_are_gone_when_the_owner_is_killed(tmp_path, unread):
    """The story: the kernel killed the server with its owner, so that nobody was left to end what
    the user's code had started. An owner that leaves a message unread is another case: its end of
    the socket does not close, it breaks."""
    command = [sys.executable, "-c", _OWNER, str(tmp_path), *unread]
    owner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    server, worker, other, *pair = map(int, owner.stdout.readline().split())
    assert len(pair) == 2
    deadline = time.monotonic() + 120
    while len(family := group_of_processes(worker)) < 2 or (unread and psutil.pid_exists(other)):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    owner.kill()
    owner.wait()
    wait_until_gone([server, *family, *pair])


def test_torch_that_cannot_be_loaded_is_one_line(tmp_path, monkeypatch):
    broken = tmp_path / "torchvision"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('operator nms does not exist')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with (
        ForkServer() as server,
        pytest.raises(LaunchError, match=r"ended: ImportError: operator nms does not exist$"),
    ):
        server.wait_until_ready()

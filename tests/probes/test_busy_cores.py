"""Cores that compute beside a measurement: as many as may be used, and no longer than it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from probes.busy_cores import BusyCores
from probes.cpu import read_cpu
from probes.errors import LinkProbeError

OWNER = """
import time, psutil
from probes.busy_cores import BusyCores

with BusyCores():
    print(psutil.Process().children()[0].pid, flush=True)
    time.sleep(1000)
"""


def comes_true(holds: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 60
    while not (held := holds()) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return held


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def children() -> set[psutil.Process]:
    return set(psutil.Process().children())


def test_a_thread_for_each_usable_core_computes():
    before = children()
    with BusyCores():
        (child,) = children() - before
        used = {thread.id: thread.user_time for thread in child.threads()}

        def computing() -> int:
            return sum(t.user_time > used.get(t.id, 0.0) + 0.05 for t in child.threads())

        assert comes_true(lambda: computing() >= read_cpu().usable_cores)
    assert is_gone(child.pid)


def test_nothing_computes_after_an_error():
    before, found = children(), set[psutil.Process]()

    def fail_beside_it() -> None:
        with BusyCores():
            found.update(children() - before)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_beside_it()
    (child,) = found
    assert is_gone(child.pid)


def test_nothing_computes_when_its_owner_was_killed():
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        os.kill(owner.pid, signal.SIGKILL)
    assert comes_true(lambda: is_gone(pid))


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise ImportError('no such library')", "no such library"),
        ("float32 = None\ndef full(*_): raise MemoryError('no memory left')", "no memory left"),
    ],
    ids=["numpy cannot be loaded", "a thread has no memory"],
)
def test_a_process_whose_threads_cannot_compute_ends_and_says_why(
    tmp_path, monkeypatch, program, said
):
    (tmp_path / "numpy.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    with pytest.raises(LinkProbeError, match=said), BusyCores():
        pass

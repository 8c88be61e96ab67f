"""Workers of a bench on this machine: a process for each, with what workers of a node share."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from _block import BenchError

from launch.gradient_sync.node_channel.descriptors import SharedDescriptors


def task_of_worker() -> dict[str, Any] | None:
    """Give the task of this process; ``None`` where it is the bench itself."""
    if sys.argv[1:2] != ["--worker"]:
        return None
    task: dict[str, Any] = json.loads(sys.argv[2])
    return task


def run_workers(
    script: str,
    tasks: Sequence[Mapping[str, Any]],
    *,
    limit_s: float,
    environment: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Run a script once for each task, at the same time; give what each printed as JSON.

    Args:
        script: Is called with ``--worker`` and its task, which has the numbers of the
            ``descriptors`` added.
        tasks: Each with the ``way`` that it belongs to.
        limit_s: Time of all.
        environment: Variables beside those of this process.

    Raises:
        BenchError: One failed, or did not end in time.
    """
    way = tasks[0]["way"]
    descriptors = SharedDescriptors.create()
    numbers = descriptors.numbers()
    try:
        workers = [
            subprocess.Popen(
                [sys.executable, script, "--worker", json.dumps({**task, "descriptors": numbers})],
                env=os.environ | environment,
                pass_fds=numbers,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                text=True,
            )
            for task in tasks
        ]
        try:
            said = [worker.communicate(timeout=limit_s)[0] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
    except subprocess.TimeoutExpired:
        raise BenchError(f"{way}: no end within {limit_s:.0f} s") from None
    finally:
        descriptors.close()
    if any(worker.returncode for worker in workers):
        raise BenchError(f"{way}: a worker failed")
    return [json.loads(text) for text in said]

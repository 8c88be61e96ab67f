"""Which command should the user type next? One that can be pasted."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from planner.reach import Reach


def next_command(
    command: str,
    use_case: str | None = None,
    *,
    data: str | None = None,
    db: str,
    plan_id: int | None = None,
    hosts: Path | None = None,
    reach: Reach = Reach(),  # noqa: B008 - it is frozen
) -> str:
    """Give a ddlplan command line with what it must share with the one that ends now.

    Args:
        command: ``tune``, ``launch`` or ``probe``.
        use_case: As it is stored; ``None`` where the command has none.
        data: Folder of the data, if one was named.
        db: Database; it is left out where the next command finds it by itself.
        plan_id: Plan to launch, where that is not the one which ``launch`` finds by itself.
        hosts: Host file, if one was named.
        reach: How hosts were reached.
    """
    words = ["ddlplan", command]
    if use_case is not None:
        words += ["--use-case", use_case]
    if data is not None:
        words += ["--data", data]
    if hosts is not None:
        words += ["--hosts", str(hosts)]
    if plan_id is not None:
        words += ["--plan", str(plan_id)]
    if reach.ssh_config is not None:
        words += ["--ssh-config", str(reach.ssh_config)]
    if reach.mpirun is not None:
        words += ["--mpirun", reach.mpirun]
    if reach.allow_root:
        words.append("--allow-run-as-root")
    if db != os.environ.get("DDLPLAN_DB", "planner.db"):
        words += ["--db", db]
    return shlex.join(words)

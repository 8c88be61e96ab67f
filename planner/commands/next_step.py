"""Which command should the user type next? One that can be pasted."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def next_command(
    command: str,
    use_case: str,
    *,
    data: str | None,
    db: str,
    plan_id: int | None = None,
    hosts: Path | None = None,
) -> str:
    """Give a ddlplan command line with what it must share with the one that ends now.

    Args:
        command: ``tune`` or ``launch``.
        use_case: As it is stored.
        data: Folder of the data, if one was named.
        db: Database; it is left out where the next command finds it by itself.
        plan_id: Plan to launch, where that is not the one which ``launch`` finds by itself.
        hosts: Host file, if one was named.
    """
    words = ["ddlplan", command, "--use-case", use_case]
    if data is not None:
        words += ["--data", data]
    if hosts is not None:
        words += ["--hosts", str(hosts)]
    if plan_id is not None:
        words += ["--plan", str(plan_id)]
    if db != os.environ.get("DDLPLAN_DB", "planner.db"):
        words += ["--db", db]
    return shlex.join(words)

"""Reasons for which there can be no testbed here."""

from __future__ import annotations

import os
import shutil
import subprocess

from testbed import cgroups
from testbed.programs import SSHD

_PROGRAMS = {
    SSHD: "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ip": "iproute2",
    "tc": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
}


def find_obstacle() -> str | None:
    """Say in one line what is missing; ``None`` where a testbed can be brought up."""
    if os.geteuid() != 0:
        return "a testbed needs root, for network namespaces"
    missing = sorted({package for name, package in _PROGRAMS.items() if not shutil.which(name)})
    if missing:
        return f"a testbed needs programs that are not here: install {', '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    if tried.returncode != 0:
        return f"a testbed needs namespaces: {tried.stderr.strip()}"
    return cgroups.find_obstacle()

"""Explanation of a host that gave no facts, with a remedy."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from launch.hosts.findings import Finding, FindingFactory
from launch.hosts.host_line import Host
from launch.hosts.parallel_commands import CommandResult

_SSH_FAILED = 255
_NOT_FOUND = (126, 127)
_NO_CLIENT = re.compile(r"(?:/usr/bin/)?env: .?ssh\W")


def login_command(host: Host, ssh_config: Path | None, *, by_srun: bool) -> str:
    """Give what a user would type to start something there."""
    if by_srun:
        return f"srun --nodelist={host.name}"
    words = ["ssh"]
    words += [] if ssh_config is None else ["-F", str(ssh_config)]
    words += [] if host.port is None else ["-p", str(host.port)]
    return " ".join([*words, host.name if host.user is None else f"{host.user}@{host.name}"])


def explain_no_facts(host: str, result: CommandResult, *, login: str) -> Finding:
    """Explain why a host gave no facts.

    Args:
        host: Its name.
        result: What came in place of facts.
        login: What a user would type to log in there.
    """
    findings = FindingFactory(host)
    said = _last_line(result.err) or _last_line(result.out)
    if result.code is None:
        return findings.fail(
            "ssh",
            f"no answer within {result.elapsed_s:.0f} s{_quoted(said)}: "
            f"see what hangs after {login}",
        )
    if result.code == _SSH_FAILED:
        failed = _last_line(result.err).removeprefix("ssh: ")
        check, remedy = _remedy(failed, login)
        return findings.fail(check, f"{failed or 'ssh failed'}: {remedy}")
    if result.code in _NOT_FOUND and _NO_CLIENT.match(said):
        return findings.fail("ssh", f"{said}: install openssh-client on this machine")
    if result.code in _NOT_FOUND:
        return findings.fail(
            "path",
            f"{sys.executable} cannot be started there{_quoted(said)}: "
            "install ddlplan in the same folder on every host",
        )
    if "No module named" in result.err:
        return findings.fail(
            "path",
            f"{sys.executable} there has no ddlplan of this version ({said}): "
            "install the same version in the same folder on every host",
        )
    how = f"exit code {result.code}" if result.code >= 0 else f"signal {-result.code}"
    return findings.fail(
        "facts", f"no facts, but {how}{_quoted(said)}: try {login} true, which must write nothing"
    )


_REMEDIES: tuple[tuple[str, str, str], ...] = (
    ("could not resolve", "name", "correct the name, or add it to /etc/hosts or to ~/.ssh/config"),
    (
        "permission denied",
        "ssh",
        "ssh must log in without a password: add your key there, as ssh-copy-id does",
    ),
    ("host key verification failed", "ssh", "log in once by {login} to compare and accept its key"),
    ("too many authentication failures", "ssh", "name the right key in ~/.ssh/config"),
    ("bad configuration", "ssh", "correct your ssh configuration"),
)
"""Words of ssh's message, the check that they belong to, the way out."""


def _remedy(said: str, login: str) -> tuple[str, str]:
    for words, check, remedy in _REMEDIES:
        if words in said.lower():
            return check, remedy.format(login=login)
    return "ssh", f"see that the host is up, that sshd runs there, and that {login} works"


def check_ssh(host: str, result: CommandResult, *, is_here: bool) -> Finding:
    """Report how long a host took that gave its facts."""
    if is_here:
        return FindingFactory(host).ok("ssh", "this machine, not asked by ssh")
    return FindingFactory(host).ok("ssh", f"answered in {result.elapsed_s:.1f} s")


def _last_line(text: str) -> str:
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return lines[-1][:300].rstrip(".") if lines else ""


def _quoted(said: str) -> str:
    return f" ({said})" if said else ""

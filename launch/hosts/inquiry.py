"""How is a host asked for its facts? By a program that is started there; here without ssh."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from launch.hosts.ask import Answer, OnAnswer
from launch.hosts.facts import LIMIT_S as FACTS_LIMIT_S
from launch.hosts.line import Host
from launch.hosts.ssh import LOGIN_LIMIT_S, ssh_command

LIMIT_S = LOGIN_LIMIT_S + FACTS_LIMIT_S + 5.0
"""For the login, the facts, and Python's start on a slow disk."""

OnProgress = Callable[[int, int], None]
"""Hears how many hosts have answered, of how many."""

_PROGRAM = (sys.executable, "-P", "-m", "launch.hosts.facts")
_FORWARDED = ("PYTHONPATH", "LD_LIBRARY_PATH", "DDLPLAN_CACHE")
"""Variables that a rank gets too, and on which it depends what is found."""


class Ask(Protocol):
    """Runs programs side by side: `launch.hosts.ask.ask_all`."""

    def __call__(
        self, commands: Sequence[Sequence[str]], *, limit_s: float, on_answer: OnAnswer | None
    ) -> list[Answer]:
        """Give what each of them wrote, in the order of the commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """The ways to the hosts."""

    here: frozenset[str]
    """Names of this machine."""

    ssh_config: Path
    """What `launch.hosts.ssh.write_ssh_config` wrote."""

    by_srun: bool
    ask: Ask

    def put(
        self, hosts: Sequence[Host], arguments: Sequence[str], on_progress: OnProgress | None = None
    ) -> tuple[dict[str, Answer], Answer]:
        """Ask hosts and this machine at once; give the answers by name, and this machine's.

        Args:
            hosts: Whom to ask; this machine is asked whether it is one of them or not.
            arguments: Of the program `launch.hosts.facts`.
            on_progress: Hears of each answer.
        """
        program = [*_PROGRAM, *arguments, f"--folder={Path.cwd()}"]
        away = [host for host in hosts if host.name not in self.here]
        done = 0

        def on_answer(number: int, _: Answer) -> None:
            nonlocal done
            done += 1 if number < len(away) else len(hosts) - len(away)
            if on_progress is not None:
                on_progress(done, len(hosts))

        commands = [*(self._command(host, program) for host in away), program]
        *others, own = self.ask(commands, limit_s=LIMIT_S, on_answer=on_answer)
        answers = {host.name: answer for host, answer in zip(away, others, strict=True)}
        return {host.name: answers.get(host.name, own) for host in hosts}, own

    def _command(self, host: Host, program: Sequence[str]) -> list[str]:
        if self.by_srun:
            where = (f"--nodelist={host.name}", "--nodes=1", "--ntasks=1", "--overlap")
            return ["srun", *where, "--export=ALL", *program]
        environment = [f"{name}={os.environ[name]}" for name in _FORWARDED if name in os.environ]
        words = ["/usr/bin/env", *environment, *program]
        return ssh_command(host, words, config=self.ssh_config, timeout_s=LOGIN_LIMIT_S)

"""What people see while hosts are looked at, before anything is started there."""

from __future__ import annotations

import io
import time

import pytest
from host_answers import facts_of, host
from rich.console import Console

from launch.hosts.checked import HostsChecked
from launch.hosts.file import HostList
from planner.commands.on_hosts import check_together
from planner.output import Output

HOSTS = (host("node1"), host("node2"))


class SlowReach:
    """Hosts that take until the user was shown what is going on."""

    def __init__(self, written: io.StringIO, shows: dict[str, str]) -> None:
        self._written = written
        self._shows = shows
        self.done: list[str] = []

    def check(self, hosts, *, use_case, data, runs, on_progress):
        on_progress(1, len(hosts))
        self._wait_for("check")
        return HostsChecked(hosts=HOSTS, findings=(), facts={}, here=facts_of(1))

    def check_root(self):
        self.done.append("root")

    def check_world(self, checked, names):
        self._wait_for("world")

    def _wait_for(self, step):
        give_up = time.monotonic() + 30
        while self._shows.get(step, "") not in self._written.getvalue():
            assert time.monotonic() < give_up, self._written.getvalue()
            time.sleep(0.01)
        self.done.append(step)


@pytest.fixture
def look():
    """Check two hosts; give what was done, and what was written meanwhile."""

    def check(*, is_terminal, **shows):
        written = io.StringIO()
        out = Output("probe", as_json=False)
        out.errors = Console(file=written, force_terminal=is_terminal, width=80)
        reach = SlowReach(written, shows)
        check_together(HostList(hosts=HOSTS), reach, out)
        return reach.done, written.getvalue()

    return check


def test_terminal_shows_how_many_hosts_have_answered_and_that_ranks_are_started(look):
    """The story: for half a minute nothing was to be seen."""
    done, _ = look(is_terminal=True, check="1 of 2 answered", world="starting an MPI rank")
    assert done == ["check", "root", "world"]


def test_what_is_no_terminal_gets_one_line(look):
    assert look(is_terminal=False)[1] == "checking 2 hosts\n"

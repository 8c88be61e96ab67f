"""The end of a fork server, whatever it is doing."""

from __future__ import annotations

import signal
from pathlib import Path

from launch.workers.fork_server import ForkServer


def test_server_that_still_loads_torch_is_ended_at_once():
    """It looked up only once torch was loaded: on a busy machine a search that was told to end
    waited ten seconds for that."""
    server = ForkServer()
    server.close()
    assert server._process.returncode == -signal.SIGKILL
    assert not Path(f"/proc/{server.pid}").exists()

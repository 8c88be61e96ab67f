"""Plain PyTorch: one process with all its threads."""

from __future__ import annotations

import sys

from planner.peers._base import Peer, PeerSetup, PeerStart


class PlainPyTorch(Peer):
    """A training loop in one process, which PyTorch gives all cores."""

    script = "plain_loop.py"
    is_one_process = True
    is_for_hosts = False

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        return [PeerStart(command=[sys.executable, *self.training_command(setup)])]

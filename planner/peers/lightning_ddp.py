"""PyTorch Lightning with one process for each core, by its strategy ddp."""

from __future__ import annotations

from planner.peers.lightning import Lightning


class LightningDdp(Lightning):
    """The Trainer starts the processes itself."""

    is_one_process = False

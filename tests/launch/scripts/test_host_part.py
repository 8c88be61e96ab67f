"""The part of a script on a host does what its owner says, whenever that is said."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TypeVar

from launch.hosts.program_channel import ProgramChannel
from launch.plan import Plan
from launch.reports import Report
from launch.scripts.host_part import HostPartRequest, PartEnded, PartReady
from launch.scripts.torchrun_nodes import TorchrunNodes
from probes.child_process import module_command
from probes.hardware import Hardware

Kind = TypeVar("Kind", bound=Report)


def next_of(kind: type[Kind], channel: ProgramChannel) -> Kind:
    while not channel.is_over:
        for report in channel.take():
            if isinstance(report, kind):
                return report
        channel.read()
    raise AssertionError(channel.read_errors())


def test_a_signal_right_behind_the_start_reaches_the_script(tmp_path: Path, two_cores: Hardware):
    """It was lost where both came at once, and the script of that host went on."""
    torchrun = tmp_path / "torchrun"
    torchrun.write_text("#!/bin/sh\nexec sleep 600\n")
    torchrun.chmod(0o755)
    (tmp_path / "train.py").touch()
    request = HostPartRequest(
        arguments=(str(torchrun), "train.py"),
        plan=Plan(strategy="script", node_batch=1, options={"own_settings": True}),
        node=two_cores,
        nodes=TorchrunNodes(count=1, rank=0, master_address="127.0.0.1"),
        folder=str(tmp_path),
        mark="mark",
    )
    channel = ProgramChannel("node1", module_command("launch.scripts.host_part"), request)
    try:
        ready = next_of(PartReady, channel)
        channel.send(b"start %d\nsignal %d\n" % (ready.port, signal.SIGUSR1))
        assert next_of(PartEnded, channel).code == -signal.SIGUSR1
    finally:
        channel.hang_up()
        channel.close()

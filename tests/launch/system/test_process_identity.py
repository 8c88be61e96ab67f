"""A process is told from a later one of its number, and from one of another boot or container."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from launch.system.process_identity import ProcessIdentity
from probes import codec


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_process_is_alive_until_it_ends_reaped_or_not(sleeper):
    identity = ProcessIdentity.of(sleeper.pid)
    assert identity.is_alive() is True
    sleeper.kill()
    while identity.is_alive():
        pass  # the kernel is about to end it
    assert identity.is_alive() is False
    sleeper.wait()
    assert identity.is_alive() is False
    assert ProcessIdentity.of(sleeper.pid) is None


def test_later_process_with_the_same_number_is_another_one(sleeper):
    identity = ProcessIdentity.of(sleeper.pid)
    earlier = replace(identity, started_ticks=identity.started_ticks - 1)
    assert earlier.is_alive() is False


@pytest.mark.parametrize("elsewhere", [{"boot_id": "another"}, {"pid_namespace": "pid:[1]"}])
def test_process_of_another_boot_or_container_cannot_be_judged(sleeper, elsewhere):
    assert replace(ProcessIdentity.of(sleeper.pid), **elsewhere).is_alive() is None


def test_machine_that_was_started_anew_is_recognised_by_its_name():
    identity = ProcessIdentity.of()
    assert not identity.is_of_earlier_boot()
    assert replace(identity, boot_id="another").is_of_earlier_boot()
    assert not replace(identity, boot_id="another", machine="elsewhere").is_of_earlier_boot()


def test_identity_of_an_earlier_release_can_be_read():
    values = codec.to_builtins(ProcessIdentity.of())
    del values["pid_namespace"]
    assert codec.convert(values, ProcessIdentity, source="test").pid_namespace == ""

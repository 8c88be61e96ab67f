"""The facts of a host: true ones where they can be found out, and reasons where they cannot."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import pytest
from host_answers import facts_of

import launch
from launch.hosts import facts_program
from launch.hosts.host_facts import DOCUMENT_KEY, HostFacts, find_facts
from probes import codec

ROOT = Path(launch.__file__).parents[1]


def found(*arguments, **environment):
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "launch.hosts.facts_program", *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    said = find_facts(ended.stdout)
    assert said is not None
    return said


def told_here(limit_s=60.0, **asked):
    """What a start of the program would tell, without one."""
    nothing = dict.fromkeys(("use_case", "data", "routes_to", "runs"), "")
    request = Namespace(**nothing | {name: str(value) for name, value in asked.items()})
    facts = facts_program.collect_facts(request, limit_s=limit_s)
    return codec.convert(facts, HostFacts, source="facts")


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    for name, size in (("a/1.jpg", 3), ("a/2.jpg", 4), ("b/1.jpg", 5)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x" * size)
    return folder


def test_this_machine_says_what_it_is():
    before_s = time.time()
    said = found("--use-case", "simplebig")
    assert said.host_name == socket.gethostname()
    assert said.executable == sys.executable
    assert said.package == str(ROOT)
    assert said.versions.keys() == set(facts_program.PACKAGES)
    assert said.versions["torch"]
    assert said.free_ports == facts_program.PORTS
    assert said.hardware.node
    assert before_s <= said.began_s <= said.clock_s <= time.time()
    assert {held.network for held in said.addresses} >= {"127.0.0.0/8"}
    assert said.problems == {}
    assert said.data is None


def test_facts_are_found_without_importing_torch():
    program = "import sys; import launch.hosts.facts_program as f\nf.os._exit = lambda _: None\n"
    program += "f.main(['--use-case=simplebig'])\nassert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", program], check=True, capture_output=True)


def test_facts_survive_the_way_through_json():
    said = facts_of(1)
    values = codec.to_builtins(said)
    assert codec.convert(values, HostFacts, source="facts") == said
    newer = {DOCUMENT_KEY: 1, **values, "a later fact": 1}
    assert find_facts(f"welcome!\n{json.dumps(newer)}\n") == said
    assert find_facts(json.dumps(newer | {"clock_s": "noon"})) is None
    address = {"interface": "eth0", "kind": "physical", "address": "x", "network": "10.0.0.0/8"}
    assert find_facts(json.dumps(newer | {"addresses": [address]})) is None


@pytest.mark.parametrize(
    ("connection", "address"),
    [
        ("10.0.0.9 4711 10.0.0.1 22", "10.0.0.1"),
        ("fe80::9%e0 1 fe80::1%e0 22", "fe80::1"),
        ("nonsense", None),
    ],
)
def test_address_that_ssh_came_in_by_is_told(connection, address, monkeypatch):
    monkeypatch.setenv("SSH_CONNECTION", connection)
    assert told_here().reached_at == address


def test_digest_of_the_data_is_of_names_and_sizes(data, tmp_path):
    first = told_here(data=data).data
    assert (first.kind, first.num_files, first.num_bytes) == ("folder", 3, 12)
    copy = tmp_path / "copy"
    shutil.copytree(data, copy)
    os.utime(copy / "a/1.jpg", (0, 0))
    assert told_here(data=copy).data.digest == first.digest
    (copy / "a/1.jpg").write_bytes(b"xxxx")
    (copy / "a/2.jpg").write_bytes(b"xxx")
    swapped = told_here(data=copy).data
    assert (swapped.num_bytes, swapped.digest == first.digest) == (12, False)
    (copy / "a/1.jpg").rename(copy / "a/3.jpg")
    assert told_here(data=copy).data.digest != swapped.digest


def test_data_may_be_a_file_or_missing(data):
    assert told_here(data=data / "a/1.jpg").data.num_bytes == 3
    missing = told_here(data=data / "none")
    assert (missing.data.kind, missing.data.digest) == ("missing", None)


def test_place_for_the_files_of_a_job_may_be_made_but_not_where_something_is_in_the_way(tmp_path):
    assert told_here(runs=tmp_path / "not" / "yet").runs_fault is None
    file = tmp_path / "file"
    file.touch()
    assert told_here(runs=file / "runs").runs_fault == f"{file} is no folder"
    assert told_here(runs=tmp_path / ("x" * 300)).runs_fault == "file name too long"  # it raised


def test_file_of_the_use_case_is_compared_by_its_content(tmp_path):
    file = tmp_path / "case.py"
    file.write_text("class Case: ...\n")
    first = told_here(use_case=f"{file}:Case").use_case
    file.write_text("class Case: 'changed'\n")
    assert told_here(use_case=f"{file}:Case").use_case not in (first, None)
    missing = told_here(use_case=f"{tmp_path}/x.py:Case")
    assert "no such file" in missing.problems["use_case"].lower()


def test_use_case_in_a_module_is_looked_for_where_a_rank_would_start(tmp_path):
    (tmp_path / "mycases.py").write_text("class Case: ...\n")
    wanted = ("--use-case", "mycases:Case")
    assert found(*wanted, "--folder", tmp_path).problems == {}
    assert "mycases" in found(*wanted).problems["use_case"]
    assert "mycases" in found(*wanted, "--folder", tmp_path / "none").problems["use_case"]


def test_broken_package_is_a_fact_and_no_end(tmp_path):
    """Not even our own dependencies may be needed to say what is wrong, and that in one line."""
    (tmp_path / "psutil.py").write_text("raise OSError('half\\ninstalled')\n")
    said = found(PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert said.hardware is None
    assert said.addresses == ()
    assert said.problems["hardware"] == "OSError: half installed"
    assert said.problems["addresses"] == "OSError: half installed"
    assert said.versions["torch"]


def test_ports_that_cannot_be_held_are_counted():
    program = "import resource; from launch.hosts import facts_program\n"
    program += (
        "resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8)); print(facts_program._free_ports())"
    )
    ended = subprocess.run(
        [sys.executable, "-P", "-c", program], check=True, capture_output=True, text=True
    )
    assert 0 <= int(ended.stdout) < 8


def test_file_system_that_hangs_is_not_waited_for(monkeypatch, data):
    monkeypatch.setattr(facts_program, "_files", lambda _: time.sleep(60))
    said = told_here(limit_s=6, data=data)
    assert said.problems == {"data_files": "no answer within 6 s"}
    assert (said.data.kind, said.data.digest) == ("folder", None)
    assert said.versions["torch"]

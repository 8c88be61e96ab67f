"""Host files on the command line: refused in one line, and nothing of what they say is run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from host_file_cases import CANARY, MALFORMED, UNSAFE

from launch.errors import HostFileError
from planner.jobs.hosts import Hosts

MANY = Path(__file__).with_name("many_command_lines.py")
CASES = [(content, line, token, 2) for content, line, token, _ in MALFORMED]
CASES += [(content, line, token, 7) for content, line, token in UNSAFE]
COMMANDS = {
    ("launch", "--use-case", "simplebig"): CASES,
    ("tune", "--use-case", "simplebig"): CASES[::7],
    ("probe",): CASES[1::7],
    ("doctor",): CASES[2::7],
}
NAMES = (
    f"$(touch {CANARY})",
    f"`touch {CANARY}`",
    f";touch {CANARY}",
    f"-oProxyCommand=touch {CANARY}",
    "two\nlines",
    "\x1b[31mred",
    "\udcff",
)
PROGRAMS = ("ssh", "scp", "mpirun", "mpiexec", "prterun", "srun", "rsh", "touch", "sh")


@pytest.fixture
def trapped(ddlplan):
    """The command where every program that it could start for a host would make the canary."""
    folder = ddlplan.folder.parent / "traps"
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).write_text(f"#!/bin/bash\n: > {ddlplan.folder / CANARY}\n")
        (folder / name).chmod(0o755)
    ddlplan.environment |= {"PATH": str(folder), "DDLPLAN_MPIRUN": str(folder / "mpirun")}
    return ddlplan


def write(folder, cases):
    for number, (content, *_) in enumerate(cases):
        data = content if isinstance(content, bytes) else content.encode()
        (folder / f"hosts{number}").write_bytes(data)


def run_many(trapped, lines):
    ended = subprocess.run(
        [sys.executable, "-P", str(MANY)],
        cwd=trapped.folder,
        env={**os.environ, **trapped.environment},
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout)


def test_enough_host_files_are_malformed():
    assert len({content for content, *_ in CASES}) == len(CASES) >= 120


@pytest.mark.parametrize(("command", "cases"), COMMANDS.items(), ids=lambda part: part[0])
def test_every_malformed_host_file_is_refused_in_one_line_and_runs_nothing(trapped, command, cases):
    write(trapped.folder, cases)
    before = trapped.listing()
    lines = [[*command, "--hosts", f"hosts{number}"] for number in range(len(cases))]
    ends = run_many(trapped, lines)
    for number, (case, end) in enumerate(zip(cases, ends, strict=True)):
        (_, line, token, expected), (code, out, err, happened) = case, end
        assert (code, out, happened) == (expected, "", []), err
        assert err.startswith(f"error: hosts{number}:{line}: "), err
        assert err.count("\n") == 1
        assert token in err
        assert "expected" in err
        assert "Traceback" not in err
    assert trapped.listing() == before


def test_name_of_a_host_file_is_only_a_name(trapped):
    for name in NAMES:
        (trapped.folder / name).write_text("a slots=0\n")
    before = trapped.listing()
    for code, out, err, happened in run_many(trapped, [["doctor", f"--hosts={n}"] for n in NAMES]):
        assert (code, out, happened) == (2, "", [])
        assert err.count("\n") == 1
        assert err.startswith("error: ")
        assert "'slots=0': expected" in err
        assert err.strip().isprintable()
    assert trapped.listing() == before


@pytest.mark.parametrize(
    ("allocation", "code", "says"),
    [
        (f"a,-oProxyCommand=touch${{IFS}}{CANARY}", 7, "'-oProxyCommand=touch"),
        (f"n[1-2],$(touch {CANARY})", 7, "'$(touch"),
        ("n[1-2", 2, "'n[1-2': expected"),
    ],
)
def test_slurm_allocation_is_read_as_carefully_as_a_file(trapped, allocation, code, says):
    before = trapped.listing()
    refused = trapped.run("launch", "--use-case", "simplebig", SLURM_JOB_NODELIST=allocation)
    assert "SLURM_JOB_NODELIST:" in refused.refusal(code)
    assert says in refused.refusal(code)
    assert trapped.listing() == before


def test_login_to_a_host_that_is_meant_would_fall_into_the_trap(trapped):
    """So what the tests above do not find is not there."""
    (trapped.folder / "hosts").write_text("192.0.2.77\n")
    ended = trapped.run("doctor", "--hosts", "hosts")
    assert ended.code == 4
    assert (trapped.folder / CANARY).exists()


@pytest.mark.parametrize(
    ("allocation", "expected"),
    [
        (None, ["localhost"]),
        ("", ["localhost"]),
        ("gpu[01-03,07],login1", ["gpu01", "gpu02", "gpu03", "gpu07", "login1"]),
    ],
)
def test_without_a_host_file_the_hosts_are_those_of_slurm_or_this_machine(allocation, expected):
    environment = {} if allocation is None else {"SLURM_JOB_NODELIST": allocation}
    found = Hosts.find(environment=environment)
    assert list(found.names) == expected


def test_named_host_file_beats_the_allocation(tmp_path):
    (tmp_path / "hosts").write_text("node1\n")
    file, environment = tmp_path / "hosts", {"SLURM_JOB_NODELIST": "n[1-9]"}
    assert Hosts.find(file, environment=environment).names == ("node1",)
    (tmp_path / "hosts").write_text("# nobody\n")
    with pytest.raises(HostFileError, match="names no host"):
        Hosts.find(file, environment=environment)

"""What deploy/ has can be used as it is: options exist, files are there, nothing is forgotten."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm_stand_in
from serving import write_token

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def unit() -> list[tuple[str, str]]:
    """Give the settings of the unit."""
    text = (DEPLOY / "ddlplan.service").read_text().replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and line[0] not in "#["]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def instructions() -> Iterator[tuple[str, str]]:
    """Give the instructions of the Containerfile."""
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Containerfile").read_text(), flags=re.MULTILINE)
    for line in text.replace("\\\n", "").splitlines():
        if line:
            word, _, rest = line.partition(" ")
            yield word, rest


def copied() -> Iterator[tuple[str, str]]:
    """Give what the Containerfile copies, and where to."""
    for word, rest in instructions():
        if word == "COPY":
            *sources, target = rest.split()
            yield from ((source, target) for source in sources)


def started() -> dict[str, list[str]]:
    """Give the arguments with which each of them starts ddlplan."""
    service = dict(unit())["ExecStart"]
    container = "".join(dict(instructions())["CMD"])
    batch = (DEPLOY / "serve.sbatch").read_text().splitlines()[-1]
    return {
        "ddlplan.service": shlex.split(service)[1:],
        "Containerfile": re.findall(r'"([^"]*)"', container),
        "serve.sbatch": shlex.split(batch)[2:],
    }


def test_ddlplan_has_the_options_that_it_is_started_with(ddlplan):
    known = ddlplan.run("serve", "--help").out
    for command, *rest in started().values():
        assert command == "serve"
        options = [word for word in rest if word.startswith("-")]
        assert "--token-file" in options
        assert [option for option in options if f"{option} " not in known] == []


def test_systemd_takes_the_unit(tmp_path):
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze: install systemd")
    text = (DEPLOY / "ddlplan.service").read_text()
    file = tmp_path / "ddlplan.service"
    file.write_text(text.replace("/opt/ddlplan/bin/ddlplan", sys.executable))
    checked = subprocess.run(
        [analyze, "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=60
    )
    ours = [line for line in checked.stderr.splitlines() if "ddlplan" in line]
    assert (checked.returncode, ours) == (0, [])


def test_jobs_outlive_the_server_and_keep_what_they_need():
    settings = dict(unit())
    assert settings["KillMode"] == "process"
    assert settings["OOMPolicy"] == "continue"
    text = (DEPLOY / "ddlplan.service").read_text()
    listed = text.partition("# What jobs do not need.")[2].partition("\n\n")[0]
    left_out = re.findall(r"[A-Z][A-Za-z]+(?=[,:])", listed)
    assert "PrivateTmp" in left_out
    assert set(left_out) & settings.keys() == set()


def test_the_container_copies_what_is_in_the_repository():
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    for source, _ in copied():
        assert any(file == source or file.startswith(f"{source}/") for file in tracked), source


def test_the_container_is_of_a_named_release_and_runs_as_a_user():
    found = list(instructions())
    assert re.fullmatch(r"\S+:[0-9.]+-slim-[a-z]+", dict(found)["FROM"])
    assert dict(found)["USER"] not in ("root", "0")
    extras = re.findall(r"\.\[([a-z,]+)\]", " ".join(rest for _, rest in found))
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras[0].split(",")) <= known["optional-dependencies"].keys()


@pytest.mark.long
def test_what_the_container_copies_can_be_installed_and_is_whole(tmp_path):
    source = tmp_path / "src"
    source.mkdir()
    for name, target in copied():
        place = source / target / name if target == "./" else source / target
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, place)
    build = "import setuptools.build_meta as build; print(build.build_wheel('.'))"
    subprocess.run([sys.executable, "-c", build], cwd=source, check=True, capture_output=True)
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    for floor in ("probes", "launch", "planner"):
        files = [file for file in (ROOT / floor).rglob("*") if file.is_file()]
        wanted = {str(f.relative_to(ROOT)) for f in files if "__pycache__" not in f.parts}
        assert wanted - packed == set()


def can_build(program: str) -> bool:
    """Whether a builder is there, and its daemon if it has one."""
    if shutil.which(program) is None:
        return False
    return subprocess.run([program, "info"], capture_output=True).returncode == 0


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_container_is_built_and_shows_its_version(tmp_path):
    if os.environ.get("CONTAINER") != "required":
        pytest.skip("downloads some GB: CONTAINER=required builds it")
    builder = next(filter(can_build, ("podman", "docker")), None)
    assert builder is not None, "CONTAINER=required, but neither podman nor docker works"
    name = f"localhost/ddlplan-test-{os.getpid()}"
    build = [builder, "build", "--file", "deploy/Containerfile", "--tag", name, "."]
    subprocess.run(build, cwd=ROOT, check=True)
    try:
        command = [builder, "run", "--rm", name, "serve", "--help"]
        shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert "--token-file" in shown
    finally:
        subprocess.run([builder, "rmi", name], check=False, capture_output=True)


def test_the_container_answers_to_the_name_that_a_browser_outside_uses(ddlplan):
    arguments = " ".join(started()["Containerfile"]).replace("/data/", "").replace("8765", "0")
    process = ddlplan.start(*arguments.split())
    try:
        port = int(process.stdout.readline().strip().strip("/").rpartition(":")[2])
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        asked.request("GET", "/", headers={"Host": "localhost:8765"})
        assert asked.getresponse().status == 401
        asked.close()
        assert (ddlplan.folder / "token").stat().st_mode & 0o777 == 0o600
    finally:
        process.send_signal(signal.SIGTERM)
        ddlplan.end(process)
    assert process.returncode == 0


def test_the_batch_script_serves_until_the_job_is_cancelled(ddlplan, tmp_path):
    slurm_stand_in.install(tmp_path / "slurm")
    (tmp_path / "slurm" / "ddlplan").write_text(
        f'#!/bin/sh\nexec {sys.executable} -P -m planner "$@"\n'
    )
    (tmp_path / "slurm" / "ddlplan").chmod(0o755)
    write_token(ddlplan.folder)
    process = subprocess.Popen(
        [tmp_path / "slurm" / "sbatch", str(DEPLOY / "serve.sbatch")],
        cwd=ddlplan.folder,
        env={
            **os.environ,
            "PATH": f"{tmp_path / 'slurm'}:{os.environ['PATH']}",
            "DDLPLAN_TEST_MARK": ddlplan.mark,
        },
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline().startswith("http://127.0.0.1:")
        (server,) = ddlplan.processes(of="planner serve")
        os.kill(server, signal.SIGTERM)
        assert process.wait(timeout=60) == 0

"""What every peer promises, asked of every file in the folder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from launch.packages.install_command import install_command
from launch.workload import Workload
from planner.errors import UsageError
from planner.peer_runs.launcher import find_ports
from planner.peer_runs.processes import PeerProcesses, supervised
from planner.peer_runs.supervisor import SupervisorRequest
from planner.peer_runs.trainings import PeerTraining
from planner.peers import load_peer, peer_names
from planner.peers._base import PeerSetup

ALWAYS_THERE = {"plain", "ddp", "run_cpu"}
"""They come with PyTorch."""

LOCAL = ("127.0.0.1",)
TWO = ("10.0.0.1", "10.0.0.2")


def make_setup(peer, addresses=LOCAL, **changes):
    known = {
        "workload": Workload(use_case="simplebig", data="/photos"),
        "addresses": addresses,
        "node_batch": 32,
        "processes": 1 if peer.is_one_process else 2,
        "folder": Path("/scratch"),
        "ports": tuple(range(40000, 40010)),
        "is_local": len(addresses) == 1,
        "mpirun": ("mpirun",),
    }
    return PeerSetup(**(known | changes))


@pytest.fixture(params=peer_names())
def peer(request):
    return load_peer(request.param)


def test_peer_says_in_one_line_why_it_cannot_train(peer):
    obstacle = peer.find_obstacle(make_setup(peer))
    assert obstacle is None or (obstacle and len(obstacle.splitlines()) == 1)
    if peer.name in ALWAYS_THERE:
        assert obstacle is None


def test_peer_that_is_not_installed_names_the_command_that_installs_it(peer, monkeypatch):
    if peer.name in ALWAYS_THERE:
        pytest.skip("it comes with PyTorch")
    monkeypatch.setattr("planner.peers._base.find_spec", lambda _: None)
    monkeypatch.setattr(type(peer), "version", None)
    assert peer.find_obstacle(make_setup(peer)).startswith("not installed: ")


def test_peer_whose_installed_release_is_malicious_is_never_started(install_lightning):
    install_lightning("2.6.2")
    for name in ("lightning", "lightning_ddp"):
        peer = load_peer(name)
        obstacle = peer.find_obstacle(make_setup(peer))
        assert obstacle.startswith("lightning 2.6.2 is a malicious release")
        assert install_command("lightning!=2.6.2,!=2.6.3") in obstacle


def test_peer_refuses_a_batch_that_it_cannot_share_out(peer):
    setup = make_setup(peer, node_batch=7, processes=2)
    assert peer.find_obstacle(setup) is not None


def test_peer_starts_its_script_with_what_it_is_told(peer):
    setup = make_setup(peer, channels_last=True, loader_workers=3)
    words = [word for start in peer.starts(setup) for word in start.command]
    assert any(Path(word).name == peer.script and Path(word).is_file() for word in words)
    text = " ".join(words)
    assert f"--batch-size {32 // setup.processes} " in text
    assert "--loader-workers 3" in text
    assert "--channels-last" in text
    assert "--use-case simplebig --data /photos" in text
    assert {start.host for start in peer.starts(setup)} == {0}


def test_peer_starts_on_every_host_or_says_that_it_trains_on_one(peer):
    setup = make_setup(peer, TWO)
    if not peer.is_for_hosts:
        assert "one host" in peer.find_obstacle(setup)
        return
    if "pyspark" in peer.modules and find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed, which holds the programs that start it")
    assert {start.host for start in peer.starts(setup)} in ({0, 1}, {None})


def test_no_library_of_a_peer_is_imported_to_judge_it():
    program = (
        "import sys\n"
        "from planner.peers import load_peer, peer_names\n"
        "for name in peer_names(): load_peer(name).version\n"
        "print(*{'torch', 'ray', 'pyspark', 'lightning', 'tensorflow'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_unknown_peer_is_named_with_the_nearest():
    with pytest.raises(UsageError, match="did you mean accelerate"):
        load_peer("acelerate")


def test_spark_names_the_java_that_it_needs(monkeypatch, tmp_path):
    spark = load_peer("spark")
    if spark.version is None:
        monkeypatch.setattr("planner.peers._base.find_spec", lambda _: True)
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Java 17" in spark.find_obstacle(make_setup(spark))
    java.unlink()
    assert "Java 17" in spark.find_obstacle(make_setup(spark))


def test_scripts_of_peers_are_all_used_by_one():
    scripts = {
        file.name
        for file in Path(sys.modules["planner.peers"].__file__).parent.glob("scripts/[!_]*.py")
        if not file.name.startswith("keras_")
    }
    used = {load_peer(name).script for name in peer_names()}
    assert scripts - used == set()


def test_ray_lets_in_who_has_the_token_of_its_start():
    """Another host had none: Ray takes one that is in the user's home to be known to all."""
    ray = load_peer("ray")
    tokens = []
    for setup in (make_setup(ray), make_setup(ray, TWO), make_setup(ray, TWO)):
        environments = [start.environment for start in ray.starts(setup)]
        assert {one["RAY_AUTH_MODE"] for one in environments} == {"token"}
        (token,) = {one["RAY_AUTH_TOKEN"] for one in environments}
        tokens.append(token)
    assert len(set(tokens)) == len(tokens)


def test_ray_without_tokens_trains_on_one_host_only(monkeypatch):
    ray = load_peer("ray")
    monkeypatch.setattr("planner.peers._base.find_spec", lambda _: True)
    for version, is_refused in (("2.51.1", True), ("2.52.0", False), ("3.0.0", False)):
        monkeypatch.setattr(type(ray), "version", version)
        assert ray.find_obstacle(make_setup(ray)) is None
        assert (ray.find_obstacle(make_setup(ray, TWO)) is not None) == is_refused


def test_tensorflow_has_a_version_whichever_of_its_packages_is_installed(monkeypatch):
    for package in ("tensorflow_cpu", "tensorflow"):
        installed = {package: "2.21.0"}
        monkeypatch.setattr("planner.peers.tensorflow.find_version", installed.get)
        assert load_peer("tensorflow").version == "2.21.0"
    monkeypatch.setattr("planner.peers.tensorflow.find_version", {}.get)
    assert load_peer("tensorflow").version is None


def test_tensorflow_serves_nobody_where_it_trains_alone():
    """Its server listens on all addresses, without a password."""
    tensorflow = load_peer("tensorflow")
    (alone,) = tensorflow.starts(make_setup(tensorflow))
    assert "TF_CONFIG" not in alone.environment
    together = tensorflow.starts(make_setup(tensorflow, TWO))
    places = [json.loads(start.environment["TF_CONFIG"])["task"]["index"] for start in together]
    assert places == [0, 1]


QUICKEST = ("plain", "OwnStep")
FIRST_WITH_SCRIPT = {load_peer(name).script: name for name in reversed(peer_names())}
"""What a script makes of a use case is the same whoever starts it: its other peers train one."""

COMPARED = {"plain", "ddp"}
"""On the first of the two use cases, by the test of the command."""

TRAININGS = [
    pytest.param(name, case, marks=() if (name, case) == QUICKEST else pytest.mark.long)
    for name in peer_names()
    for case in ("Steady", "OwnStep")
    if case == "OwnStep" or name in {*FIRST_WITH_SCRIPT.values()} - COMPARED
]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """Names of sockets are below it."""
    with TemporaryDirectory(prefix="p-") as name:
        yield Path(name)


@pytest.mark.parametrize(("name", "case"), TRAININGS)
def test_peer_that_is_installed_trains(name, case, tmp_path, short_folder):
    """As the command would start it, on use cases of numbers, one with a step of its own.

    So has a LightningModule, whose batches are whatever its collation makes.
    """
    peer = load_peer(name)
    case = f"{Path(__file__).parents[1] / 'steady_cases.py'}:{case}"
    setup = make_setup(
        peer,
        workload=Workload(use_case=case),
        node_batch=8,
        loader_workers=0,
        folder=short_folder,
        ports=find_ports(6, is_local=True),
        mpirun=("mpirun", "--allow-run-as-root", "-n", str(1 if peer.is_one_process else 2)),
    )
    if (obstacle := peer.find_obstacle(setup)) is not None:
        pytest.skip(obstacle)
    request = SupervisorRequest(
        token=tmp_path.name,
        folder=str(short_folder),
        address="127.0.0.1",
        commands=tuple(peer.starts(setup)),
    )
    with PeerProcesses([supervised(None, request)]) as processes:
        training = PeerTraining(processes, start_limit_s=200, step_limit_s=60)
        assert training.begun.processes == setup.world_size
        first = training.make_steps(3)
        again = training.make_steps(3)
    assert {step.samples for step in (*first, *again)} == {8}
    assert len(first) >= 3
    assert len(again) >= 3

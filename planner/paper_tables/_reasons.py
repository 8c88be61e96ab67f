"""Reasons for what a table lacks that several papers have, and the commands that they name."""

from __future__ import annotations

from shlex import quote

from planner.jobs.suggested_command import database_options
from planner.paper_tables._evidence import StoredEvidence
from planner.sweeps.device_settings import make_device_settings
from planner.sweeps.sweep_record import SweepRecord
from probes.hardware import Hardware


def explain_no_gpu(name: str, node: Hardware) -> str:
    """Say that a machine has no GPU, and why where that is known."""
    why = "" if node.gpu_reason is None else f": {node.gpu_reason}"
    return f"no GPU on {name}{why}"


def why_no_gpus(held: StoredEvidence, record: SweepRecord) -> str | None:
    """Say why a sweep has no figures of GPUs; ``None`` where they are among its devices."""
    if any(setting.plan.gpus for setting in record.settings):
        return None
    node = held.find_hardware(record.node, record.fingerprint)
    if node is not None and not node.gpus:
        return explain_no_gpu(record.node, node)
    return f"sweep {record.id} has none: ddlplan sweep --devices takes them where there are any"


def why_devices_lack(held: StoredEvidence, record: SweepRecord, command: str) -> str | None:
    """Say which numbers of devices a sweep lacks that it would have by default.

    ``None`` where it has them all, where no probe of its machine is stored, and where it lacks all
    GPUs: see `why_no_gpus`.
    """
    node = held.find_hardware(record.node, record.fingerprint)
    if node is None:
        return None
    usual = make_device_settings((), node, least_batch=min(record.batches))
    if usual[0].plan.gpus and why_no_gpus(held, record) is not None:
        return None
    known = {setting.label for setting in record.settings}
    lacking = [setting.label for setting in usual if setting.label not in known]
    if not lacking:
        return None
    return f"sweep {record.id} has no figures of {', '.join(lacking)}: {command}"


def data_option(data: str | None) -> str:
    """Give the option that names data, with the blank before it; nothing where none are named."""
    return "" if data is None else f" --data {quote(data)}"


def db_option(held: StoredEvidence) -> str:
    """Give the option that names a report's database, with the blank before it.

    Nothing where there is none, or where a command finds it by itself.
    """
    if held.db is None:
        return ""
    words = ["--db", held.db] if held.names_db else database_options(held.db)
    return "".join(f" {quote(word)}" for word in words)


def measure_command(held: StoredEvidence) -> str:
    """Give the command that measures what a report lacks."""
    return f"ddlplan report --measure{db_option(held)}"

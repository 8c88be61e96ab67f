"""Machine: what it is and how fast, with the plans and studies it has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from planner.api import machines, plans, studies
from planner.quantities import format_bytes
from planner.records.machine_record import MachineRecord
from planner.report.hardware import hardware_facts
from planner.service.pages.view import Context, PageRequest, View, end_of_times
from probes.hardware import Gpu, Speeds

_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineView:
    """A machine in a few words."""

    record: MachineRecord
    processor: str = "not probed"
    cores: str = ""
    memory: str = ""
    gpus: str = ""
    speeds: Speeds = field(default_factory=Speeds)

    part: float = 0.0
    """Its fp32 rate / that of the fastest machine beside it."""


def machine_views(records: Iterable[MachineRecord]) -> list[MachineView]:
    """Describe machines, beside one another."""
    views = [_view(record) for record in records]
    rates = [one.speeds.fp32_all_cores_flop_per_s or 0.0 for one in views]
    highest = max(rates, default=0.0) or 1.0
    return [replace(one, part=rate / highest) for one, rate in zip(views, rates, strict=True)]


def _view(record: MachineRecord) -> MachineView:
    hardware = record.hardware
    if hardware is None:
        return MachineView(record=record)
    cpu = hardware.cpu
    return MachineView(
        record=record,
        processor=cpu.model or cpu.architecture,
        cores=f"{cpu.granted_cores:g}",
        memory=format_bytes(hardware.memory.usable_bytes),
        gpus=_name_gpus(hardware.gpus),
        speeds=hardware.speeds or Speeds(),
    )


def _name_gpus(gpus: Sequence[Gpu]) -> str:
    names = [gpu.name or "unknown GPU" for gpu in gpus]
    counted = {name: names.count(name) for name in names}
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in counted.items())


def show(request: PageRequest, context: Context) -> View:
    """Show one machine."""
    record = machines.get(request.numbers["id"], db=context.db)
    facts = [] if record.hardware is None else hardware_facts(record.hardware)
    found = plans.find_latest(node=record.name, most=_MOST, db=context.db)
    return View(
        template="machine.html",
        title=record.name,
        values={
            "machine": _view(record),
            "is_elsewhere": context.typed_on not in (None, record.name),
            "facts": facts,
            "plans": found,
            "fastest": end_of_times(found),
            "studies": studies.find(node=record.name, most=_MOST, db=context.db),
        },
        topics=["machine", "plan", "study"],
    )

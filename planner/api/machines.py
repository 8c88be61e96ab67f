"""Machines that the database knows, with what was measured of them."""

from __future__ import annotations

from planner.cluster.links import MeasuredLinks
from planner.errors import NoPlanError
from planner.records.machine_record import MachineRecord
from planner.store import Store


def find(*, db: str = "planner.db") -> list[MachineRecord]:
    """Give every machine by name; one that has other hardware now is there twice.

    Example:
        >>> from planner.api import machines
        >>> [machine.hardware.cpu.usable_cores for machine in machines.find()]  # doctest: +SKIP
        [16, 8]

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.catalog.machines()


def get(machine_id: int, *, db: str = "planner.db") -> MachineRecord:
    """Give one machine.

    Example:
        >>> from planner.api import machines
        >>> machines.get(1).name  # doctest: +SKIP
        'node1'

    Raises:
        NoPlanError: None has this number.
        StoreError: The database cannot be used.
    """
    found = next((one for one in find(db=db) if one.id == machine_id), None)
    if found is None:
        raise NoPlanError(f"no machine {machine_id}: ddlplan probe makes one known")
    return found


def find_networks(*, db: str = "planner.db") -> list[MeasuredLinks]:
    """Give the measurements of networks between hosts, the latest first.

    Example:
        >>> from planner.api import machines
        >>> machines.find_networks()[0].links[0].bytes_per_s  # doctest: +SKIP
        117440512.0

    Raises:
        NoDatabaseError: There is no database.
        StoreError: The database cannot be used.
    """
    with Store.open(db, create=False) as store:
        return store.machines.find_links()

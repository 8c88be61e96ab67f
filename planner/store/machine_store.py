"""Machine store: probes of machines, and measurements of the network between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, select

from planner.cluster.links import MeasuredLinks
from planner.records.event_record import Topic
from planner.store.databases.database import Database, insert
from planner.store.databases.tables import links, nodes, probes
from planner.store.event_log import record_event
from planner.store.rows import find_document, links_columns, links_from_row
from probes import codec
from probes.hardware import DataSpeed, Hardware

_MOST_FOLDERS = 32
"""Of data that are stored with a probe."""


class MachineStore:
    """Machines of a database. Each method is one transaction."""

    def __init__(self, database: Database, now: Callable[[], datetime]) -> None:
        self._database = database
        self._now = now

    def save_probe(self, hardware: Hardware) -> None:
        """Save the result of a probe, with the folders of data that were measured before it."""

        def work(connection: Connection) -> None:
            with self._database.decoding():
                found = connection.execute(_select_probe(hardware.fingerprint(), hardware.node))
                before = find_document(found.scalar(), Hardware)
            measured = {speed.path for speed in hardware.data}
            earlier = () if before is None else before.data
            kept = tuple(speed for speed in earlier if speed.path not in measured)
            merged = replace(hardware, data=(*kept, *hardware.data)[-_MOST_FOLDERS:])
            node_id = record_node(connection, hardware.node, hardware.fingerprint(), self._now())
            values = {"node_id": node_id, "hardware": codec.to_builtins(merged)}
            connection.execute(probes.insert().values(created_at=self._now(), **values))
            record_event(connection, Topic.MACHINE, node_id, self._now)

        self._database.write(work)

    def latest_probe(self, fingerprint: str, *, node: str | None = None) -> Hardware | None:
        """Give the last probe of this hardware; of this node where one is named.

        A probe that another release stored in another form counts as none: a new one takes
        seconds.
        """
        query = _select_probe(fingerprint, node)
        found = self._database.fetch(query, lambda row: find_document(row["hardware"], Hardware))
        return found[0] if found else None

    def find_data_speed(self, node: Hardware, path: str) -> DataSpeed | None:
        """Give the last measurement of a folder of data on a node; ``None`` without any."""
        latest = self.latest_probe(node.fingerprint(), node=node.node)
        found = () if latest is None else latest.data
        return next((speed for speed in found if speed.path == path), None)

    def save_links(self, measured: MeasuredLinks) -> int:
        """Save a measurement of the network between hosts and return its id."""

        def work(connection: Connection) -> int:
            links_id = insert(connection, links, links_columns(measured))
            record_event(connection, Topic.LINKS, links_id, self._now)
            return links_id

        return self._database.write(work)

    def latest_links(self, hosts: Mapping[str, str]) -> MeasuredLinks | None:
        """Give the last measurement that these hosts were part of, with the hardware they have.

        Args:
            hosts: Fingerprints of their hardware, by name.
        """
        found = self.find_links()
        return next((one for one in found if hosts.items() <= one.hardware.items()), None)

    def find_links(self) -> list[MeasuredLinks]:
        """Give the measurements of networks, the latest first."""
        return self._database.fetch(select(links).order_by(links.c.id.desc()), links_from_row)


def _select_probe(fingerprint: str, node: str | None) -> Select[Any]:
    """Select the last probe of a hardware, on a node where one is named."""
    query = select(probes.c.hardware).join(nodes).where(nodes.c.fingerprint == fingerprint)
    if node is not None:
        query = query.where(nodes.c.name == node)
    return query.order_by(probes.c.id.desc()).limit(1)


def record_node(connection: Connection, name: str, fingerprint: str, seen: datetime) -> int:
    """Write when a machine was last seen, and give the number of its row."""
    query = select(nodes.c.id).where(nodes.c.name == name, nodes.c.fingerprint == fingerprint)
    node_id: int | None = connection.execute(query).scalar()
    if node_id is None:
        values = {"name": name, "fingerprint": fingerprint, "first_seen": seen}
        return insert(connection, nodes, values | {"last_seen": seen})
    connection.execute(nodes.update().where(nodes.c.id == node_id).values(last_seen=seen))
    return node_id

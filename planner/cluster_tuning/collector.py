"""Collector: stores what each node reports as it comes, and concludes from it in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self

from launch.case_facts import CaseFacts
from launch.reports import DataProgress, Noted, Report, Warned
from planner.cluster.links import MeasuredLinks
from planner.cluster_tuning.reports import (
    CaseDescribed,
    LinksMeasured,
    NodeDone,
    NodeFailed,
    NodeProbed,
)
from planner.errors import NoDatabaseError, NoPlanError
from planner.plans.stored_plan import utc_now
from planner.store import Store
from planner.trials.reports import Listener, StudyOpened, TrialEnded
from planner.tuning.conclusion import TuneOutcome, conclude
from planner.tuning.findings import Findings
from planner.tuning.tune_request import TuneRequest
from probes.hardware import Hardware


@dataclass
class NodeState:
    """What is known of one node."""

    host: str
    """As the host file names it."""

    hardware: Hardware | None = None
    findings: Findings | None = None
    pixel_bytes: int | None = None
    failure: NodeFailed | None = None
    is_done: bool = False
    outcome: TuneOutcome | None = None


class LazyStore:
    """The database, which is made when there is something to keep. Use it in a ``with`` block."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._store: Store | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()

    def get(self) -> Store:
        """Open the database, and make it where there is none."""
        self._store = self._store or Store.open(self._url)
        return self._store

    def find(self) -> Store | None:
        """Open the database if there is one."""
        with suppress(NoDatabaseError):
            self._store = self._store or Store.open(self._url, create=False)
        return self._store


@dataclass
class Collector:
    """The starting process's view of the nodes, which alone writes the database.

    The listener receives progress, notes, warnings and trials, with their host.
    """

    store: LazyStore
    software: Mapping[str, str]
    listener: Listener
    request: TuneRequest | None = None
    nodes: dict[str, NodeState] = field(default_factory=dict)
    """By host name, in the order of the host file."""

    links: MeasuredLinks | None = None

    def receive(self, host: str, report: Report) -> None:
        """Receive a node's report: store its probe and its trials, and note how far it is."""
        node = self.nodes[host]
        match report:
            case NodeProbed(hardware=hardware, is_new=is_new):
                node.hardware = hardware
                if is_new:
                    self.store.get().machines.save_probe(hardware)
            case DataProgress() | Noted() | Warned():
                self.listener(report, host)
            case CaseDescribed(facts=facts, pixel_bytes=pixel_bytes):
                node.pixel_bytes = pixel_bytes
                self._begin_study(node, facts)
            case TrialEnded(result=result):
                assert node.findings is not None
                self.listener(node.findings.add(result), host)
            case NodeFailed():
                node.failure = report
            case NodeDone():
                node.is_done = True

    def store_links(
        self, hosts: Sequence[str], nodes: Sequence[Hardware | None], measured: LinksMeasured
    ) -> None:
        """Keep what the network could do, with its hosts and their hardware by rank."""
        self.links = MeasuredLinks.from_ranks(
            measured.links,
            measured.all_reduces,
            hosts=hosts,
            fingerprints=["" if node is None else node.fingerprint() for node in nodes],
            measured_at=utc_now(),
        )
        if measured.links:
            self.store.get().machines.save_links(self.links)

    def conclude(self, *, interrupted: bool) -> None:
        """Choose and keep the best plan of every node, as far as it is known."""
        for node in self.nodes.values():
            if node.findings is None:
                continue
            failed = node.failure is not None and not node.failure.is_lost
            is_cut_short = interrupted or not (node.is_done or failed)
            try:
                node.outcome = conclude(
                    node.findings, self.store.get().plans, interrupted=is_cut_short
                )
            except NoPlanError as error:
                node.failure = node.failure or NodeFailed.of(error)

    def _begin_study(self, node: NodeState, facts: CaseFacts) -> None:
        assert self.request is not None
        assert node.hardware is not None
        if node.findings is None:  # else the search goes on after another host was lost
            store = self.store.get()
            node.findings = Findings(
                self.request, facts, node.hardware, self.software, store.studies
            )
            opened = StudyOpened(study_id=node.findings.study_id, is_generated=facts.is_generated)
            self.listener(opened, node.host)

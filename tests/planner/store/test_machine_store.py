"""Probes of machines and measured networks are read back as they were, the last ones first."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from sample_plan import NOON
from store_cases import STUDY
from worth_cases import NODE as HARDWARE

from planner.cluster.links import HostAllReduce, HostLink, MeasuredLinks
from planner.errors import StoreCorruptError
from planner.store import Store
from planner.store.rows import links_columns, links_from_row
from probes.hardware import DataSpeed

LINKS = MeasuredLinks(
    hosts=("n1", "n2", "n3"),
    fingerprints=("sha256:aa", "sha256:aa", "sha256:bb"),
    measured_at=NOON,
    links=tuple(
        HostLink(first=one, second=other, latency_s=1e-4, bytes_per_s=1.17e8)
        for one, other in (("n1", "n2"), ("n1", "n3"), ("n2", "n3"))
    ),
    sums=(
        HostAllReduce(
            message_bytes=228_000_000,
            time_s=2.1,
            cpu_s=(0.4, 0.3, 0.3),
            interrupts_s=(0.1, 0.0, 0.1),
            beside_s=2.4,
        ),
    ),
)


def test_sum_of_an_older_release_costs_every_host_what_it_cost_the_busiest():
    older = {"message_bytes": 4, "time_s": 2.1, "cpu_s": 0.4}
    sums = [older, older | {"interrupts_s": 0.1}]
    row = links_columns(LINKS)
    measured = links_from_row(row | {"measurement": row["measurement"] | {"sums": sums}})
    assert [one.cpu_s for one in measured.sums] == [(0.4, 0.4, 0.4)] * 2
    assert [one.interrupts_s for one in measured.sums] == [(0.0, 0.0, 0.0), (0.1, 0.1, 0.1)]
    assert [one.beside_s for one in measured.sums] == [None, None]


@pytest.mark.parametrize(
    "changes",
    [
        {"links": LINKS.links[:1]},
        {"fingerprints": ("sha256:aa",)},
        {"sums": (replace(LINKS.sums[0], cpu_s=(0.4,)),)},
    ],
)
def test_links_that_are_not_of_every_host_are_one_error(store, changes):
    """Each was a traceback of what computed with them."""
    store.machines.save_links(replace(LINKS, **changes))
    with pytest.raises(StoreCorruptError, match=r"\(links 1: links: .* restore a copy"):
        store.machines.find_links()


def test_the_last_links_that_all_hosts_took_part_in_with_their_hardware_are_given(store):
    pair = replace(LINKS, hosts=("n1", "n2"), fingerprints=("sha256:aa",) * 2, sums=())
    store.machines.save_links(LINKS)
    store.machines.save_links(pair)
    assert store.machines.latest_links({"n2": "sha256:aa", "n1": "sha256:aa"}) == pair
    assert store.machines.latest_links(hardware("n2", "n3")) == LINKS
    assert store.machines.latest_links(hardware("n2", "n3") | {"n4": "sha256:aa"}) is None
    assert store.machines.latest_links(hardware("n1") | {"n2": "sha256:new"}) is None


def hardware(*names: str) -> dict[str, str]:
    return {name: LINKS.hardware[name] for name in names}


def test_the_last_probe_of_a_hardware_is_given(store):
    assert store.machines.latest_probe(HARDWARE.fingerprint()) is None
    store.machines.save_probe(HARDWARE)
    newer = replace(HARDWARE, warnings=("noisy",))
    store.machines.save_probe(newer)
    assert store.machines.latest_probe(HARDWARE.fingerprint()) == newer
    assert store.machines.latest_probe(HARDWARE.fingerprint(), node="other") is None


def test_measured_data_stay_with_later_probes_of_the_node(store):
    first = DataSpeed(path="/first", file_system="ext4", num_files=1)
    other = DataSpeed(path="/other", file_system="nfs4", is_network=True)
    store.machines.save_probe(replace(HARDWARE, data=(first, other)))
    store.machines.save_probe(HARDWARE)
    again = replace(first, num_files=2)
    store.machines.save_probe(replace(HARDWARE, data=(again,)))
    assert store.machines.find_data_speed(HARDWARE, "/first") == again
    assert store.machines.find_data_speed(HARDWARE, "/other") == other
    assert store.machines.find_data_speed(HARDWARE, "/nowhere") is None
    assert store.machines.find_data_speed(replace(HARDWARE, node="second"), "/first") is None


def test_a_probe_in_words_of_another_release_counts_as_none(store, database):
    store.machines.save_probe(HARDWARE)
    database.execute("UPDATE probes SET hardware = '{}'")
    assert store.machines.latest_probe(HARDWARE.fingerprint()) is None


def test_a_node_is_known_by_the_hardware_it_was_last_seen_with(database):
    times = iter(NOON + timedelta(hours=hour) for hour in range(12))
    with Store.open(database.url, now=lambda: next(times)) as store:
        assert store.catalog.fingerprints() == {}
        store.machines.save_probe(HARDWARE)
        assert store.catalog.fingerprints() == {"vm": HARDWARE.fingerprint()}
        store.studies.get_or_create(STUDY)
        assert store.catalog.fingerprints() == {"vm": "sha256:aa"}
        store.machines.save_probe(HARDWARE)
        assert store.catalog.fingerprints() == {"vm": HARDWARE.fingerprint()}
        # The story: where hardware was put back, the plans of a search that went on were stale.
        store.studies.get_or_create(STUDY)
        assert store.catalog.fingerprints() == {"vm": "sha256:aa"}

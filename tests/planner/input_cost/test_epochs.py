"""Epochs take what reading adds to computing, and a copy pays where files are read again."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sample_plan import CASE, FOUND
from worth_cases import NODE

from launch.plan import Plan
from planner.input_cost.epochs import assess_input
from planner.input_cost.lines import data_facts, input_lines
from planner.input_cost.read_times import cache_hits
from probes import codec
from probes.hardware import DataSpeed, LocalCopy, Memory, ReadRate
from probes.timing import Interval

GB = 10**9
FACTS = replace(CASE, train_samples=900, read_s=0.002)


def rates(*files_per_s):
    """Give rates by 1, 2, 4, ... readers of files of 100 kB."""
    return tuple(
        ReadRate(readers=1 << power, files_per_s=rate, bytes_per_s=1e5 * rate)
        for power, rate in enumerate(files_per_s)
    )


NETWORK = DataSpeed(
    path="/mnt/data",
    file_system="nfs4",
    is_network=True,
    num_files=1000,
    num_bytes=100_000_000,
    cold=rates(100, 200, 200),
    warm=rates(10_000, 10_000),
    local=LocalCopy(
        folder="/cache",
        file_system="ext4",
        copy_files_per_s=80,
        cold=rates(2_000, 4_000, 4_000),
        warm=rates(10_000, 10_000),
    ),
)


def assess(plan, *, data=NETWORK, room_bytes=GB, share=1.0, facts=FACTS, samples_per_s=100.0):
    rate = Interval(median=samples_per_s, low=samples_per_s, high=samples_per_s, count=9)
    stored = replace(FOUND, plan=plan, throughput_samples_per_s=rate, peak_memory_bytes=None)
    node = replace(NODE, memory=Memory(total_bytes=GB, usable_bytes=room_bytes))
    return assess_input(stored, facts, node, data, share=share)


PLAIN = Plan(strategy="sequential", node_batch=32)


def test_first_epoch_waits_for_every_file_and_later_ones_find_them_in_memory():
    cost = assess(PLAIN)
    assert cost.epoch_s(0) == pytest.approx(900 * (1 / 100 + 1 / 100 - 1 / 10_000))
    assert cost.epoch_s(1) == cost.later_s == pytest.approx(9.0)
    assert cost.mean_sample_s(2) == pytest.approx((cost.sample_s(0) + 1 / 100) / 2)


def test_two_processes_read_two_files_at_once():
    plan = Plan(strategy="processes", node_batch=32, processes=2, replicas=2)
    added_s = assess(plan).sample_s(0) - 1 / 100
    assert added_s == pytest.approx(1 / 200 - 1 / 10_000)


def test_loader_processes_hide_the_files_behind_the_step():
    assert assess(replace(PLAIN, loader_workers=2)).epoch_s(0) == pytest.approx(9.0)
    slow = replace(NETWORK, cold=rates(10, 20, 40))
    cost = assess(replace(PLAIN, loader_workers=2), data=slow)
    assert cost.sample_s(0) == pytest.approx(0.0019 / 2 + 1 / 20)


def test_decoded_pictures_are_read_and_decoded_in_the_first_epoch_alone():
    plan = replace(PLAIN, input="cache", threads_per_process=2)
    cost = assess(plan, room_bytes=0)
    assert cost.sample_s(0) == pytest.approx(0.01 + 0.0019 / 2 + 1 / 200)
    assert cost.later_s == pytest.approx(9.0)


def test_files_beyond_the_memory_are_read_in_every_epoch():
    cost = assess(PLAIN, room_bytes=0)
    assert cost.later_s == pytest.approx(cost.epoch_s(0))
    half = assess(PLAIN, room_bytes=50_000_000)
    assert 9.0 < half.later_s < cost.later_s


def test_page_cache_of_a_part_has_fewer_hits_than_its_part():
    assert cache_hits(10, 10) == 1.0
    assert cache_hits(0, 10) == 0.0
    assert cache_hits(5, 10) == pytest.approx(0.1534, abs=1e-4)


def test_node_with_a_share_meets_new_files_in_later_epochs_too():
    cost = assess(PLAIN, share=0.5)
    waits = [cost.sample_s(epoch) - 1 / 100 for epoch in range(3)]
    assert waits == pytest.approx([waits[0], waits[0] / 2, waits[0] / 4])


def test_copy_does_not_pay_where_later_epochs_read_from_memory():
    assert assess(PLAIN).copy_s == pytest.approx(12.5)
    assert assess(PLAIN).epochs_until_copied() is None


def test_copy_pays_after_what_it_takes_is_saved():
    # Each epoch waits 10 s for the network, and 0.5 s for the local disk: 12.5 s in two.
    cost = assess(PLAIN, room_bytes=0)
    assert cost.epochs_until_copied() == 2
    slow = replace(NETWORK, local=replace(NETWORK.local, copy_files_per_s=20))
    assert assess(PLAIN, room_bytes=0, data=slow).epochs_until_copied() == 6


def test_copy_pays_each_host_on_its_share_alone():
    """The advice to copy came four times too early where one of four hosts read a quarter."""
    whole = assess(PLAIN, room_bytes=0)
    assert replace(whole, share=0.25).epochs_until_copied() == 6  # 12.5 s of 2.375 s each
    assert assess(PLAIN, room_bytes=0, share=0.25).epochs_until_copied() == 6


def test_copy_counts_validation_too_whose_files_it_includes():
    facts = replace(FACTS, train_samples=500, validation_samples=500)
    assert assess(PLAIN, room_bytes=0, facts=facts).epochs_until_copied() == 2
    # From memory neither is read again: the first epoch alone saves.
    assert assess(PLAIN, facts=facts).epochs_until_copied() is None


def test_copy_without_room_for_it_is_not_advised():
    small = replace(NETWORK, local=replace(NETWORK.local, free_bytes=99_999_999))
    cost = assess(PLAIN, room_bytes=0, data=small)
    assert (cost.copy_fits, cost.epochs_until_copied()) == (False, None)
    _, line = input_lines(cost, 10)
    assert line == "copying them to /cache: no room for 95.4 MiB, 95.4 MiB were free"
    large = replace(NETWORK, local=replace(NETWORK.local, free_bytes=GB))
    cost = assess(PLAIN, room_bytes=0, data=large)
    assert (cost.copy_fits, cost.epochs_until_copied()) == (True, 2)


def test_copy_measured_before_room_was_recorded_is_advised_as_before():
    stored = json.loads(codec.encode(NETWORK))
    del stored["local"]["free_bytes"]
    data = codec.convert(stored, DataSpeed, source="stored")
    cost = assess(PLAIN, room_bytes=0, data=data)
    assert (cost.copy_fits, cost.epochs_until_copied()) == (None, 2)


def test_copy_pays_where_the_file_system_caches_nothing():
    # What the trials measured includes the reading: 20 ms a sample, 10 of them for its file.
    uncached = replace(NETWORK, warm=NETWORK.cold)
    cost = assess(PLAIN, data=uncached, samples_per_s=50.0)
    assert cost.epoch_s(0) == cost.later_s == pytest.approx(18.0)
    assert cost.epochs_until_copied() == 2


def test_data_on_a_local_disk_have_no_copy_to_advise():
    cost = assess(PLAIN, data=replace(NETWORK, local=None, is_network=False))
    assert cost.copy_s is None
    assert cost.epochs_until_copied() is None


def test_what_is_not_known_gives_no_cost():
    for data in (
        replace(NETWORK, num_files=None),
        replace(NETWORK, cold=()),
        replace(NETWORK, num_files=10),  # a few large files: samples are pieces of them
    ):
        assert assess(PLAIN, data=data) is None


def test_file_system_that_is_not_known_is_said_not_to_be():
    """In a chroot, whose list of mounts has no root, data were "on , epoch 1 takes 18 s"."""
    local = replace(NETWORK.local, file_system="")
    unknown = replace(NETWORK, file_system="", is_network=False, local=local)
    line = next(input_lines(assess(PLAIN, data=unknown)))
    assert line.startswith("data: /mnt/data on an unknown file system, epoch 1 takes ")
    assert dict(data_facts(unknown))["  local copy"].startswith("/cache (an unknown file system): ")


def test_file_system_of_a_stored_probe_does_nothing_to_a_terminal():
    """A database that others write to could have recoloured what `plans show` says."""
    local = replace(NETWORK.local, file_system="\x1b[2Jnfs")
    odd = replace(NETWORK, file_system="\x1b[2Jnfs", local=local)
    lines = [*input_lines(assess(PLAIN, data=odd)), *dict(data_facts(odd)).values()]
    assert all(line.isprintable() for line in lines)
    assert "\\x1b[2Jnfs" in lines[0]

"""Which samples a worker sees."""

from __future__ import annotations

from collections import OrderedDict, UserDict, namedtuple
from itertools import islice

import pytest
import torch

from launch.data.batch import describe_batch, move_batch, num_samples, split_batch
from launch.data.loading import load
from launch.data.samples import Part, ShareSampler, epoch_batches, split_evenly
from launch.data.split import BatchSize, NodeSplit
from launch.errors import UseCaseError


class Numbers(torch.utils.data.Dataset):
    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        return index


def samplers(size: int, batch: int, parts: int) -> list[ShareSampler]:
    split = NodeSplit((batch,), 0)
    return [ShareSampler(size, split, part=Part(part, parts), seed=1) for part in range(parts)]


@pytest.mark.parametrize(
    ("size", "batch", "parts"), [(100, 8, 2), (17, 8, 3), (5, 8, 4), (9, 9, 1)]
)
def test_every_sample_is_seen_once_per_epoch(size, batch, parts):
    seen = [i for s in samplers(size, batch, parts) for indices, _ in s.epoch(0) for i in indices]
    assert sorted(seen) == list(range(size))


def test_shares_of_a_batch_differ_by_one_sample_at_most():
    assert split_evenly(range(7), 3) == [[0, 1], [2, 3], [4, 5, 6]]


def test_workers_agree_on_the_size_of_every_batch():
    sizes = [[size.total for _, size in sampler.epoch(3)] for sampler in samplers(17, 8, 3)]
    assert sizes == [[8, 8, 1]] * 3


def test_order_changes_with_epoch_and_seed_and_not_with_workers():
    first = epoch_batches(50, 10, seed=1, epoch=0)
    assert first == epoch_batches(50, 10, seed=1, epoch=0)
    assert first != epoch_batches(50, 10, seed=1, epoch=1)
    assert first != epoch_batches(50, 10, seed=2, epoch=0)


@pytest.mark.parametrize("size", [100, 20, 3])
def test_steps_of_a_trial_have_equal_work_however_small_the_data(size):
    both = zip(*(s.endless(s.draw_subset(None)) for s in samplers(size, 8, 2)), strict=True)
    for one, other in islice(both, 30):
        assert len(one[0]) == len(other[0]) == 4
        assert one[1] == other[1] == BatchSize(8, 8)


@pytest.mark.parametrize("limit", [8, 30, 100, 101, None])
def test_trial_goes_round_in_the_samples_that_it_was_given(limit):
    first, second = samplers(100, 8, 2)
    samples = first.draw_subset(limit)
    assert samples == second.draw_subset(limit)
    assert len(set(samples)) == len(samples) == min(limit or 100, 100)
    both = zip(first.endless(samples), second.endless(samples), strict=True)
    seen = {i for shares in islice(both, 60) for indices, _ in shares for i in indices}
    assert seen == set(samples)


@pytest.mark.parametrize("loader_workers", [0, 2])
def test_worker_without_a_sample_takes_part_with_nothing(loader_workers):
    work = [([1, 2], 3), ([], 1), ([4], 2), ([], 1)]
    loaded = list(load(Numbers(9), iter(work), loader_workers=loader_workers))
    assert [size for _, size in loaded] == [3, 1, 2, 1]
    assert [None if b is None else b.tolist() for b, _ in loaded] == [[1, 2], None, [4], None]


def test_nested_batch_is_split_and_counted():
    batch = [{"a": torch.arange(5), "b": torch.ones(5, 2)}, (torch.zeros(5), "kept")]
    first, second = split_batch(batch, 2)
    assert (num_samples(first), num_samples(second)) == (3, 2)
    assert second[0]["a"].tolist() == [3, 4]
    assert second[1][1] == "kept"


def test_only_pictures_change_their_memory_format():
    pictures, targets = torch.ones(2, 3, 4, 4), torch.ones(2, 5)
    placed = move_batch([pictures, targets], torch.device("cpu"), torch.channels_last)
    assert placed[0].is_contiguous(memory_format=torch.channels_last)
    assert placed[1].is_contiguous()


def seen_by_node(split: NodeSplit, position: int, until: int, size: int) -> list[int]:
    """Samples that a node reads from one position of an epoch up to another."""
    sampler = ShareSampler(size, split, part=Part(0, 1), seed=1)
    work = sampler.epoch(0, position)
    steps = -(-(until - position) // split.global_batch)
    return [index for indices, _ in work[:steps] for index in indices]


@pytest.mark.parametrize("size", [100, 97, 13])
def test_shards_of_nodes_are_disjoint_and_whole_also_where_shares_change_within_an_epoch(size):
    seen: list[int] = []
    for node in range(3):
        seen += seen_by_node(NodeSplit((4, 3, 1), node), 0, 8, size)
        seen += seen_by_node(NodeSplit((1, 1, 6), node), 8, size, size)
    assert sorted(seen) == list(range(size))


def test_last_batch_is_cut_in_the_same_proportions_and_leaves_no_single_sample():
    batch = list(range(7))
    cut = [NodeSplit((8, 4, 2), node).of(batch) for node in range(3)]
    assert [len(mine) for mine, _ in cut] == [5, 2, 0]
    assert [size for _, size in cut] == [BatchSize(n, 7, is_full=False) for n in (5, 2, 0)]


Pair = namedtuple("Pair", ["inputs", "names"])


@pytest.mark.parametrize("table", [dict, OrderedDict, UserDict])
def test_a_batch_of_any_nesting_is_cut_with_the_texts_of_its_samples(table):
    values = torch.arange(10).view(5, 2)
    batch = Pair(table(ids=[values, values + 1]), [*"abcde"])
    first, second = split_batch(batch, 2)
    assert type(first) is Pair
    assert type(first.inputs) is table
    assert (first.names, second.names) == ([*"abc"], [*"de"])
    assert torch.equal(second.inputs["ids"][1], values[3:] + 1)
    assert num_samples(batch) == 5


def test_tensors_without_dimensions_and_settings_go_to_every_part():
    batch = (torch.zeros(4), torch.tensor(3), "name", [1, 2, 3])
    for part in split_batch(batch, 2):
        assert part[1:] == (torch.tensor(3), "name", [1, 2, 3])


def test_a_tensor_that_counts_something_else_than_samples_is_refused_with_what_the_batch_is():
    batch = {"ids": torch.zeros(4, 9), "mask": torch.zeros(9, 9)}
    with pytest.raises(UseCaseError, match=r"4 samples is \{ids: float32 4x9, mask: float32 9x9\}"):
        split_batch(batch, 2)


def test_a_batch_without_tensors_has_no_size_and_says_so():
    with pytest.raises(UseCaseError, match=r"a batch is 2 str, without a tensor .*size\(batch\)"):
        num_samples(["a", "b"])


def test_a_batch_is_described_by_types_and_shapes():
    batch = [torch.zeros(2, 3), {"n": torch.tensor(1), "names": ["a", "b"]}, None]
    assert describe_batch(batch) == "(float32 2x3, {n: int64 scalar, names: 2 str}, NoneType)"

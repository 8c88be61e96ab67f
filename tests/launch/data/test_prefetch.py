"""A batch is sent before the one in front of it is trained on; on a CPU nothing is sent."""

from __future__ import annotations

import pytest
import torch

from launch.data.batch import leaves, map_tensors
from launch.data.prefetch import _strided_parts, prefetch, send_ahead
from launch.data.raw_pictures import RawPictures


@pytest.mark.parametrize("count", [0, 1, 4])
def test_each_item_is_sent_before_the_one_in_front_of_it_is_received(count):
    sent, gaps = [], []

    def send(item):
        sent.append(item)
        return item

    def receive(item):
        gaps.append(len(sent) - item)
        return item

    assert list(send_ahead(iter(range(count)), send, receive)) == list(range(count))
    assert gaps == [2] * (count - 1) + [1] * min(count, 1)


def test_a_cpu_takes_batches_as_they_come():
    batches = iter([((torch.zeros(2), torch.zeros(2)), 2)])
    assert prefetch(batches, torch.device("cpu")) is batches


def test_every_tensor_of_a_batch_is_changed_and_nothing_else():
    pictures = RawPictures(torch.zeros(2, 3, 4, 4), torch.zeros(2), lambda pixels, _: pixels)
    batch = (pictures, {"class": [torch.zeros(2)], "name": ["a", "b"]})
    changed = map_tensors(batch, lambda tensor: tensor + 1)
    assert changed[1]["name"] == ["a", "b"]
    tensors = [leaf for leaf in leaves(changed) if isinstance(leaf, torch.Tensor)]
    assert [tensor.flatten()[0].item() for tensor in tensors] == [1.0, 1.0, 1.0]


SPARSE = {
    torch.sparse_coo: (None, 2),
    torch.sparse_csr: (None, 3),
    torch.sparse_csc: (None, 3),
    torch.sparse_bsr: ((2, 2), 3),
    torch.sparse_bsc: ((2, 2), 3),
}


@pytest.mark.parametrize("layout", SPARSE)
def test_memory_of_a_sparse_tensor_is_kept_by_its_parts(layout):
    """The story: torch has no record_stream for such tensors, and the first batch failed."""
    blocksize, parts = SPARSE[layout]
    tensor = torch.eye(4).to_sparse(layout=layout, blocksize=blocksize)
    assert [part.layout for part in _strided_parts(tensor)] == [torch.strided] * parts


@pytest.mark.gpu
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_a_gpu_gets_sparse_tensors_too(layout):
    batch = torch.eye(4).to_sparse(layout=layout)
    ((given, size),) = prefetch(iter([(batch, 4)]), torch.device("cuda:0"))
    assert (given.layout, given.is_cuda, size) == (layout, True, 4)
    assert torch.equal(given.to_dense().cpu(), torch.eye(4))


@pytest.mark.gpu
def test_a_gpu_gets_the_same_batches():
    batches = [((torch.randn(8, 3), torch.arange(8)), 8) for _ in range(5)] + [(None, 8)]
    given = list(prefetch(iter(batches), torch.device("cuda:0")))
    assert [size for _, size in given] == [8] * 6
    assert given[-1][0] is None
    for (ours, _), (theirs, _) in zip(given[:-1], batches[:-1], strict=True):
        assert all(tensor.is_cuda for tensor in leaves(ours))
        assert all(map(torch.equal, [t.cpu() for t in leaves(ours)], leaves(theirs)))

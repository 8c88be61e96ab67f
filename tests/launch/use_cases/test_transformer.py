"""The transformer reads text, pads pieces, and counts what is no padding."""

import pytest
import torch

from launch.errors import UseCaseError
from launch.use_cases import make_workload, resolve
from launch.use_cases.transformer import make_up_text

TEXT = "First paragraph, of 30 letters.\n\nSecond.\n\n" + "long " * 40 + "\n\nx\n\nThe last one."


@pytest.fixture
def case():
    settings = ["context=32", "layers=1", "width=8", "heads=2"]
    return resolve(make_workload("transformer", settings=settings).use_case).load()


@pytest.fixture
def text_file(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(TEXT)
    return file


def test_pieces_are_paragraphs_and_parts_of_long_ones(case, text_file):
    train, held_out = (case.dataset(text_file, train=train) for train in (True, False))
    pieces = [
        bytes(dataset[i].tolist()) for dataset in (train, held_out) for i in range(len(dataset))
    ]
    assert b"".join(pieces) == TEXT.encode()
    assert pieces[0] == b"First paragraph, of 30 letters.\n"
    assert max(map(len, pieces)) == 33
    assert pieces[-1] == b"\nThe last one."
    assert len(held_out) == 1
    assert not train.is_generated


def test_batches_are_padded_to_one_shape_and_only_characters_count(case, text_file):
    dataset = case.dataset(text_file, train=True)
    batch = case.collate([dataset[0], dataset[1]])
    inputs, target = batch
    assert inputs.shape == target.shape == (2, 32)
    assert torch.equal(inputs[0, 1:], target[0, :-1])
    assert case.weight(batch) == len(dataset[0]) + len(dataset[1]) - 2
    output = torch.randn(2, 32, 256)
    changed = output.clone()
    changed[1, len(dataset[1]) - 1 :] += torch.randn(256)
    assert torch.equal(case.loss(output, target), case.loss(changed, target))


def test_what_comes_later_is_not_seen(case):
    model = case.model()
    tokens = torch.randint(1, 256, (2, 32))
    changed = tokens.clone()
    changed[:, 20:] = 7
    with torch.no_grad():
        one, other = model(tokens), model(changed)
    assert torch.allclose(one[:, :20], other[:, :20], atol=1e-6)
    assert not torch.allclose(one[:, 20:], other[:, 20:])


def test_a_made_up_text_is_the_same_every_time_and_says_so(case):
    assert make_up_text() == make_up_text()
    assert 500_000 < len(make_up_text()) < 2_000_000
    assert case.dataset(None, train=True).is_generated


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is too short"), (b"a", "is too short"), (b"\0\1", "has NUL characters")],
)
def test_what_is_no_text_is_told(case, tmp_path, content, message):
    file = tmp_path / "text.txt"
    file.write_bytes(content)
    with pytest.raises(UseCaseError, match=message):
        case.dataset(file, train=True)


def test_a_folder_is_no_text(case, tmp_path):
    with pytest.raises(UseCaseError, match="Is a directory: name a text file"):
        case.dataset(tmp_path, train=True)


def test_sizes_that_do_not_fit_are_told():
    with pytest.raises(UseCaseError, match="a width that the heads divide"):
        resolve("transformer,heads=3").load()

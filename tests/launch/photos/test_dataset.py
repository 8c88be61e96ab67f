"""Photos of any kind become tensors, as torchvision's plain pipeline makes them."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from launch.errors import UseCaseError
from launch.photos.dataset import PhotoDataset
from launch.photos.decode import read_photo
from launch.photos.index import update_index


@pytest.fixture
def ready(data, report):
    update_index(data, report, cores=2)
    return data


def test_samples_have_the_shape_that_the_models_want(ready):
    dataset = PhotoDataset(ready, train=True)
    image, label = dataset[0]
    assert image.shape == (3, 224, 224)
    assert image.dtype == torch.float32
    assert label == 0
    assert len(dataset) + len(PhotoDataset(ready, train=False)) == 24


@pytest.mark.parametrize("size", [(400, 300), (300, 400), (10, 10), (1000, 40)])
def test_validation_samples_are_scaled_cropped_and_normalised(save, report, tmp_path, size):
    for name in ("a/1.png", "a/2.png", "b/1.png"):
        save(name, size=size)
    update_index(tmp_path / "data", report, cores=1)
    dataset = PhotoDataset(tmp_path / "data", train=False)
    image = read_photo(tmp_path / "data" / dataset.photos[0][0])
    factor = 256 / min(size)
    image = image.resize((int(size[0] * factor), int(size[1] * factor)), Image.Resampling.BILINEAR)
    left, top = (round((length - 224) / 2) for length in image.size)
    pixels = np.asarray(image.crop((left, top, left + 224, top + 224)), dtype=np.float64) / 255
    expected = (pixels - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
    assert np.abs(dataset[0][0].permute(1, 2, 0).numpy() - expected).max() < 1e-5


def test_only_training_samples_are_mirrored(ready):
    train, validation = (PhotoDataset(ready, train=train) for train in (True, False))
    seen = [train[0][0] for _ in range(20)]
    mirrored = [not torch.equal(image, seen[0]) for image in seen]
    assert any(mirrored)
    assert all(torch.equal(i, seen[0].flip(2)) for i, m in zip(seen, mirrored, strict=True) if m)
    assert torch.equal(validation[0][0], validation[0][0])


@pytest.mark.parametrize("mode", ["L", "1", "P", "CMYK"])
def test_every_kind_of_colour_becomes_rgb(save, mode):
    suffix = "jpg" if mode == "CMYK" else "png"
    assert read_photo(save(f"{mode}.{suffix}", mode)).mode == "RGB"


def test_sixteen_bit_grey_is_scaled_not_cut_off(tmp_path):
    file = tmp_path / "deep.png"
    Image.fromarray(np.full((4, 4), 128 * 256, dtype=np.uint16)).save(file)
    assert read_photo(file).getpixel((0, 0)) == (128, 128, 128)


def test_photo_taken_with_a_turned_camera_is_upright(save):
    exif = Image.Exif()
    exif[0x0112] = 6
    assert read_photo(save("turned.jpg", size=(40, 20), exif=exif)).size == (20, 40)


def test_photos_are_opened_only_when_asked_for(ready):
    dataset = PhotoDataset(ready, train=True)
    (ready / dataset.photos[1][0]).unlink()
    assert dataset[0][1] == 0
    with pytest.raises(UseCaseError, match="could be read before"):
        dataset[1]


def test_loader_processes_read_the_same_samples(ready):
    dataset = PhotoDataset(ready, train=False)
    loader = DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="fork")
    alone = DataLoader(pickle.loads(pickle.dumps(dataset)), batch_size=2)
    for (one, label), (other, same) in zip(loader, alone, strict=True):
        assert torch.equal(one, other)
        assert torch.equal(label, same)


def test_relative_folder_stays_the_same_when_the_current_one_changes(ready, monkeypatch):
    monkeypatch.chdir(ready.parent)
    dataset = PhotoDataset(type(ready)("data"), train=True)
    monkeypatch.chdir("/")
    assert dataset[0][0].shape == (3, 224, 224)

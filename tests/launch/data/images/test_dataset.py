"""Photos of any kind become tensors, as torchvision's plain pipeline makes them."""

import pickle

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision import transforms

from launch.data.batch import move_batch
from launch.data.decoded_pictures import DecodedPictures
from launch.data.images.dataset import MEAN, STD, PhotoDataset
from launch.data.images.image_file import read_photo
from launch.data.images.index import update_index
from launch.data.loading import load
from launch.data.samples import Part, ShareSampler
from launch.data.split import NodeSplit
from launch.errors import UseCaseError


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


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("memory_format", [torch.preserve_format, torch.channels_last])
@pytest.mark.parametrize("threads", [1, 2])
def test_epoch_of_decoded_photos_equals_that_of_the_files(ready, train, memory_format, threads):
    dataset = PhotoDataset(ready, train=train)
    decoded = DecodedPictures(PhotoDataset(ready, train=train), threads=threads)

    def epoch(source):
        torch.manual_seed(11)
        work = ShareSampler(len(dataset), NodeSplit((9,), 0), part=Part(0, 1), seed=2).epoch(0)
        batches = load(source, iter(work), loader_workers=0)
        return [move_batch(batch, torch.device("cpu"), memory_format) for batch, _ in batches]

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(2):
            for plain, found in zip(epoch(dataset), epoch(decoded), strict=True):
                assert torch.equal(found[0], plain[0])
                assert found[0].stride() == plain[0].stride()
                assert torch.equal(found[1], plain[1])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("count", [1, 15, 16, 17, 128])
def test_mirrors_are_drawn_as_one_by_one(ready, count):
    dataset = PhotoDataset(ready, train=True)
    torch.manual_seed(3)
    one_by_one = torch.cat([torch.rand(1) for _ in range(count)]) < 0.5
    state = torch.get_rng_state()
    torch.manual_seed(3)
    assert torch.equal(dataset.draw(count), one_by_one)
    assert torch.equal(torch.get_rng_state(), state)


def test_every_level_of_every_channel_is_normalised_as_torchvision_does(ready):
    levels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    plain = transforms.functional.normalize(levels[0].float().div(255), MEAN, STD)
    found = PhotoDataset(ready, train=False).finish(levels.contiguous(), None)
    assert torch.equal(found[0], plain)


@pytest.mark.gpu
def test_photos_finished_on_a_gpu_equal_those_of_the_files(ready):
    dataset = PhotoDataset(ready, train=True)
    pixels = torch.stack([torch.from_numpy(dataset.pixels(i)) for i in range(8)]).permute(
        0, 3, 1, 2
    )
    mirrored = torch.arange(8) % 2 == 0
    here = dataset.finish(pixels, mirrored)
    there = dataset.finish(pixels.cuda(), mirrored.cuda())
    assert torch.equal(there.cpu(), here)
    assert there.stride() == here.stride()


@pytest.mark.gpu
def test_a_gpu_that_computes_is_not_waited_for_while_photos_are_finished(ready):
    """The story: mean and deviation went to it with each batch, after all that it had to do."""
    dataset = PhotoDataset(ready, train=True)
    pixels = torch.zeros(2, 3, 224, 224, dtype=torch.uint8, device="cuda")
    mirrored = torch.tensor([True, False], device="cuda")
    dataset.finish(pixels, mirrored)
    torch.cuda.set_sync_debug_mode("error")
    try:
        dataset.finish(pixels, mirrored)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_key_changes_with_a_photo(ready, save, report):
    before = {train: PhotoDataset(ready, train=train).pixels_key() for train in (True, False)}
    changed = PhotoDataset(ready, train=True).photos[0][0]
    save(changed, size=(50, 40))
    update_index(ready, report, cores=1)
    assert PhotoDataset(ready, train=True).pixels_key() != before[True]
    assert PhotoDataset(ready, train=False).pixels_key() == before[False]


def test_splits_are_kept_apart(ready):
    train, validation = (PhotoDataset(ready, train=train) for train in (True, False))
    assert train.pixels_name() != validation.pixels_name()
    assert train.pixels_name() == PhotoDataset(ready, train=True).pixels_name()

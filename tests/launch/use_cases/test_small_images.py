"""MNIST and CIFAR-10 are read from their files, checked, and drawn where there are none."""

import gzip
import hashlib
import io
import struct
import tarfile
import zlib

import numpy as np
import pytest
import torch

from launch.data.decoded_pictures import DecodedPictures
from launch.data.pictures import Pictures
from launch.errors import UseCaseError
from launch.use_cases import resolve
from launch.use_cases._small_images.cifar import ARCHIVE, CIFAR_FILES, decode, find_cifar
from launch.use_cases._small_images.dataset import SmallImages
from launch.use_cases._small_images.drawn_digits import make_drawn_set
from launch.use_cases._small_images.idx import MNIST_FILES, find_mnist, read_idx
from launch.use_cases._small_images.known_file import KnownFile
from launch.use_cases._small_images.labelled_images import ImageSet, LabelledImages
from tests.launch.use_cases.heard import Heard

pytestmark = pytest.mark.usefixtures("cache")
NAMES = [file.name for file in MNIST_FILES]


def idx(array: np.ndarray) -> bytes:
    """The content of an IDX file, put together by hand."""
    head = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


def known(name: str, content: bytes, kind: str = "md5") -> KnownFile:
    digest = hashlib.new(kind, content).hexdigest()
    return KnownFile(name=name, num_bytes=len(content), digest=f"{kind}:{digest}")


@pytest.fixture
def mnist():
    """Contents of four files in the form of MNIST, and what they are known by."""
    rng = np.random.default_rng(0)
    contents = []
    for count in (6, 4):
        contents += [idx(rng.integers(0, 256, (count, 28, 28))), idx(np.arange(count))]
    files = tuple(known(name, content) for name, content in zip(NAMES, contents, strict=True))
    return files, dict(zip(NAMES, contents, strict=True))


def write(folder, contents, *, packed=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content))
        else:
            (folder / name).write_bytes(content)
    return folder


def open_split(images, *, train):
    return SmallImages(images, train=train, mean=[0.5], deviation=[0.25])


@pytest.mark.parametrize("packed", [False, True])
def test_mnist_is_read_from_its_four_files(mnist, tmp_path, packed):
    files, contents = mnist
    images = find_mnist(write(tmp_path / "data", contents, packed=packed), files)
    images.prepare(Heard())
    train, test = (open_split(images, train=train) for train in (True, False))
    assert (len(train), len(test)) == (6, 4)
    assert not train.is_generated
    pixels = np.frombuffer(contents[NAMES[0]], np.uint8, offset=16).reshape(6, 28, 28)
    image, label = train[5]
    assert label == 5
    expected = (torch.from_numpy(pixels[5].astype(np.float32)) / 255 - 0.5) / 0.25
    assert torch.allclose(image[0], expected)


def test_mnist_is_found_where_torchvision_puts_it(mnist, tmp_path):
    files, contents = mnist
    write(tmp_path / "data" / "MNIST" / "raw", contents, packed=True)
    images = find_mnist(tmp_path / "data", files)
    images.prepare(Heard())
    assert len(open_split(images, train=False)) == 4


def test_files_of_mnist_that_are_missing_are_named(tmp_path):
    with pytest.raises(UseCaseError, match=r"has no train-images-idx3-ubyte, .*four IDX"):
        find_mnist(tmp_path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda content: content[:-1], r"has 4719 bytes and train-images-idx3-ubyte has 4720"),
        (lambda content: content + b"x", r"has more bytes and .* has 4720"),
        (lambda content: content[:-1] + b"x", r"is not train-images-idx3-ubyte: its md5 is"),
        (lambda content: b"", r"has 0 bytes"),
    ],
)
def test_a_damaged_file_is_refused_with_its_name(mnist, tmp_path, damage, message):
    files, contents = mnist
    contents[NAMES[0]] = damage(contents[NAMES[0]])
    images = find_mnist(write(tmp_path / "data", contents), files)
    with pytest.raises(UseCaseError, match=message) as error:
        images.prepare(Heard())
    assert str(tmp_path / "data" / NAMES[0]) in str(error.value)


@pytest.mark.parametrize("cut", [5, 100, -5])
def test_a_gzipped_file_that_is_cut_off_is_refused(mnist, tmp_path, cut):
    files, contents = mnist
    folder = write(tmp_path / "data", contents, packed=True)
    packed = folder / f"{NAMES[0]}.gz"
    packed.write_bytes(packed.read_bytes()[:cut])
    with pytest.raises(UseCaseError, match=r"idx3-ubyte.gz .*: fetch it again"):
        find_mnist(folder, files).prepare(Heard())


def damage_inside(content: bytes, at: int) -> bytes:
    """Pack it, with a block of a kind that does not exist after so many bytes."""
    packer = zlib.compressobj(wbits=31)  # as gzip does it
    return packer.compress(content[:at]) + packer.flush(zlib.Z_FULL_FLUSH) + b"\x07" * 1000


def test_a_gzipped_file_that_is_damaged_inside_is_refused(mnist, tmp_path):
    """The story: zlib's own error, which is no OSError, was a traceback."""
    files, contents = mnist
    folder = write(tmp_path / "data", contents, packed=True)
    packed = folder / f"{NAMES[0]}.gz"
    packed.write_bytes(damage_inside(contents[NAMES[0]], 2000))
    with pytest.raises(UseCaseError, match=r"idx3-ubyte.gz cannot be read: .*: fetch it again"):
        find_mnist(folder, files).prepare(Heard())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with 0x00000000"),
        (b"\x89PNG....", "begins with 0x89504e47"),
        (struct.pack(">II", 0x803, 5), "ends in its header"),
        (struct.pack(">II", 0x801, 5) + b"1234", "has 4 bytes after its header, which promises 5"),
        (struct.pack(">IIII", 0x803, *[2**32 - 1] * 3) + b"1", "has 1 bytes after its header"),
    ],
)
def test_what_is_no_idx_file_is_told(content, message):
    with pytest.raises(UseCaseError, match=message):
        read_idx(content, "file")


def test_mnist_of_the_use_case_must_be_the_real_one(mnist, tmp_path):
    """Other sets have files of the same names: their results would be taken for MNIST's."""
    data = write(tmp_path / "data", mnist[1])
    case = resolve("mnist_cnn").load()
    with pytest.raises(UseCaseError, match="and train-images-idx3-ubyte has 47040016"):
        case.prepare(data, Heard())


def cifar_rows(count: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).integers(0, 256, (count, 3073)).astype(np.uint8)
    rows[:, 0] %= 10
    return rows


@pytest.fixture
def cifar():
    contents = {
        file.name: cifar_rows(3, number).tobytes() for number, file in enumerate(CIFAR_FILES)
    }
    files = tuple(known(name, content, "sha1") for name, content in contents.items())
    return files, contents


def pack(archive, contents):
    with tarfile.open(archive, "w:gz") as opened:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            opened.addfile(member, io.BytesIO(content))
    return archive


@pytest.mark.parametrize("form", ["folder", "below", "archive", "folder with archive"])
def test_cifar_is_read_from_its_binary_files(cifar, tmp_path, form):
    files, contents = cifar
    place = tmp_path / "data"
    place.mkdir()
    if form == "folder":
        write(place, contents)
    elif form == "below":
        write(place / "cifar-10-batches-bin", contents)
    else:
        archive = pack(place / ARCHIVE, contents)
        place = archive if form == "archive" else place
    images = find_cifar(place, files)
    images.prepare(Heard())
    train, test = (images.open(train=train) for train in (True, False))
    assert train.pixels.shape == (15, 32, 32, 3)
    assert test.pixels.shape == (3, 32, 32, 3)
    row = cifar_rows(3, 1)[2]  # the third image of the second file
    assert train.labels[5] == row[0]
    assert (
        train.pixels[5, 7, 9] == row[[1 + 7 * 32 + 9 + plane * 1024 for plane in range(3)]]
    ).all()


def test_an_archive_without_a_file_is_told(cifar, tmp_path):
    files, contents = cifar
    del contents["data_batch_3.bin"]
    with pytest.raises(UseCaseError, match=r"has no data_batch_3.bin"):
        find_cifar(pack(tmp_path / ARCHIVE, contents), files).prepare(Heard())


def test_an_archive_that_is_cut_off_is_told(cifar, tmp_path):
    files, contents = cifar
    archive = pack(tmp_path / ARCHIVE, contents)
    archive.write_bytes(archive.read_bytes()[:2000])
    with pytest.raises(UseCaseError, match=r"tar.gz cannot be read: .*: fetch it again"):
        find_cifar(archive, files).prepare(Heard())


@pytest.mark.parametrize("at", [2000, 20_000])
def test_an_archive_that_is_damaged_inside_is_told_in_one_line(cifar, tmp_path, at):
    files, contents = cifar
    archive = pack(tmp_path / ARCHIVE, contents)
    archive.write_bytes(damage_inside(gzip.decompress(archive.read_bytes()), at))
    with pytest.raises(UseCaseError, match=r"^/.*tar.gz cannot be read: .*: fetch it again$"):
        find_cifar(archive, files).prepare(Heard())


def test_a_class_of_cifar_that_does_not_exist_is_told():
    row = cifar_rows(1, 0)
    row[0, 0] = 10
    with pytest.raises(UseCaseError, match="an image of class 10"):
        decode(row.tobytes(), "file")


def test_cifar_that_is_missing_is_told(tmp_path):
    with pytest.raises(UseCaseError, match=r"has no data_batch_1.bin, .* no cifar-10-binary"):
        find_cifar(tmp_path)


SMALL = {
    "mnist": make_drawn_set("MNIST", side=28, colours=False, num_train=300, num_test=50),
    "cifar": make_drawn_set("CIFAR-10", side=32, colours=True, num_train=300, num_test=50),
}


@pytest.mark.parametrize("form", SMALL)
def test_drawn_sets_are_the_same_every_time(form):
    one, other = (SMALL[form].make(Heard()) for _ in range(2))
    for first, second in zip(one, other, strict=True):
        assert (first.pixels == second.pixels).all()
        assert (first.labels == second.labels).all()
    assert set(one[0].labels) == set(range(10))
    assert not (one[0].pixels[:50] == one[1].pixels).all()


def test_drawn_sets_are_what_this_version_draws():
    """Hosts that train together must draw the same, whatever their processors and numpy are."""
    digests = {
        form: hashlib.sha256(images.make(Heard())[0].pixels.tobytes()).hexdigest()[:16]
        for form, images in SMALL.items()
    }
    assert digests == DIGESTS


DIGESTS = {"mnist": "a6d867fa8b29a33a", "cifar": "ae0eae52ea0b5f50"}


def test_drawn_sets_say_so():
    images = SMALL["mnist"]
    images.prepare(Heard())
    assert open_split(images, train=True).is_generated


def test_older_arrays_of_a_set_are_removed_whatever_their_names_end_with(cache):
    """The story: a folder whose name ended in a c stayed, taken for one that ends in `.lock`."""
    images = LabelledImages(np.zeros((1, 2, 2, 1), np.uint8), np.zeros(1, np.uint8))
    for key in range(40):
        images_now = ImageSet(name="set", key=str(key), make=lambda _: (images, images))
        images_now.prepare(Heard())
    assert len([file for file in (cache / "images").iterdir() if file.is_dir()]) == 1
    assert len(images_now.open(train=True).labels) == 1


def test_a_set_that_was_not_prepared_is_told():
    with pytest.raises(UseCaseError, match="call the use case's prepare"):
        resolve("mnist_cnn").load().dataset(None, train=True)


@pytest.mark.parametrize(("form", "padding"), [("mnist", 0), ("cifar", 4)])
def test_decoded_images_equal_those_that_are_read_one_by_one(form, padding):
    images = SMALL[form]
    images.prepare(Heard())
    channels = 3 if form == "cifar" else 1
    dataset = SmallImages(
        images, train=True, mean=[0.4] * channels, deviation=[0.3] * channels, padding=padding
    )
    assert isinstance(dataset, Pictures)
    indices = [7, 3, 250]
    torch.manual_seed(1)
    alone = torch.stack([dataset[index][0] for index in indices])
    torch.manual_seed(1)
    together = torch.stack([image for image, _ in dataset.__getitems__(indices)])
    torch.manual_seed(1)
    raw, targets = DecodedPictures(dataset, threads=1).__getitems__(indices)
    assert torch.equal(alone, together)
    for form_ in (torch.contiguous_format, torch.channels_last):
        assert torch.equal(alone, raw.finished(torch.device("cpu"), form_))
    assert targets.tolist() == [dataset[index][1] for index in indices]


def test_training_images_are_moved_and_mirrored_and_test_images_are_not():
    images = SMALL["cifar"]
    images.prepare(Heard())
    settings = {"mean": [0.0] * 3, "deviation": [1.0] * 3, "padding": 4}
    train, test = (SmallImages(images, train=train, **settings) for train in (True, False))
    torch.manual_seed(0)
    seen = {train[0][0].numpy().tobytes() for _ in range(40)}
    assert len(seen) > 20
    assert torch.equal(test[0][0], test[0][0])
    plain = torch.from_numpy(images.open(train=True).pixels[0] / np.float32(255)).permute(2, 0, 1)
    drawn = torch.tensor([[4 / 9 + 0.01, 4 / 9 + 0.01, 0.9]])
    pixels = torch.from_numpy(images.open(train=True).pixels[:1].copy()).permute(0, 3, 1, 2)
    assert torch.allclose(train.finish(pixels, drawn)[0], plain)
    mirrored = torch.tensor([[4 / 9 + 0.01, 4 / 9 + 0.01, 0.1]])
    assert torch.allclose(train.finish(pixels, mirrored)[0], plain.flip(2))
    corner = train.finish(pixels, torch.tensor([[0.0, 0.0, 0.9]]))[0]
    assert torch.allclose(corner[:, 4:, 4:], plain[:, :-4, :-4])
    assert not corner[:, :4].any()

"""The use case for pictures in folders takes any network, any size, and says what is wrong."""

import pytest
import torch
from PIL import Image

from launch.errors import UseCaseError
from launch.use_cases import make_workload, resolve
from tests.launch.use_cases.heard import Heard

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def folder(tmp_path):
    for part, count in (("train", 6), ("val", 2)):
        for name in ("cat", "dog", "owl"):
            place = tmp_path / "pictures" / part / name
            place.mkdir(parents=True)
            for number in range(count):
                colour = (40 * number, 90, 200)
                Image.new("RGB", (90, 70), colour).save(place / f"{number}.png")
    return tmp_path / "pictures"


def load(data, *settings):
    return resolve(make_workload("imagefolder", settings=settings).use_case).load(data)


def prepared(data, *settings):
    case = load(data, *settings)
    case.prepare(data, Heard())
    return case


def test_a_network_has_an_output_for_each_class(folder):
    case = prepared(folder, "model=resnet18", "size=64")
    train, validation = (case.dataset(folder, train=train) for train in (True, False))
    assert (len(train), len(validation), train.classes) == (18, 6, ("cat", "dog", "owl"))
    image, label = train[0]
    assert image.shape == (3, 64, 64)
    assert label == 0
    assert not train.is_generated
    assert case.model()(torch.stack([image] * 2)).shape == (2, 3)


def test_decoded_pictures_have_the_size(folder):
    dataset = prepared(folder, "size=48").dataset(folder, train=False)
    assert dataset.pixel_shape() == (48, 48, 3)
    assert dataset.pixels(0).shape == (48, 48, 3)
    other = prepared(folder, "size=64").dataset(folder, train=False)
    assert dataset.pixels_name() != other.pixels_name()


@pytest.mark.parametrize(
    ("network", "side"),
    [
        *[("resnet18", 64), ("squeezenet1_1", 64), ("vit_b_32", 64), ("googlenet", 64)],
        *[("efficientnet_b0", 64), ("convnext_tiny", 64), ("vgg11", 32)],
    ],
)
def test_networks_give_logits_and_their_layers_the_same(folder, network, side):
    case = prepared(folder, f"model={network}", f"size={side}")
    model = case.model().eval()
    pictures = torch.randn(2, 3, side, side)
    with torch.no_grad():
        logits = model(pictures)
        assert logits.shape == (2, 3)
        layers = case.layers(model)
        if layers is not None:
            assert torch.allclose(layers.eval()(pictures), logits, atol=1e-5)
            assert {id(p) for p in layers.parameters()} == {id(p) for p in model.parameters()}
    has_layers = network.startswith(("resnet", "vgg", "eff", "conv"))
    assert (layers is not None) == has_layers


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("model=resnet19", "no network 'resnet19' that classifies: did you mean resnet1"),
        ("model=ResNet50", "did you mean resnet50"),
        ("model=fasterrcnn_resnet50_fpn", "that classifies"),
        ("model=%%", "one is alexnet"),
        ("size=8", "size=8 of pictures: use at least 32"),
    ],
)
def test_settings_that_do_not_fit_are_told(folder, setting, message):
    with pytest.raises(UseCaseError, match=message):
        load(folder, setting)


def test_the_folder_must_be_named():
    with pytest.raises(UseCaseError, match="with --data DIR"):
        load(None).prepare(None, Heard())
    with pytest.raises(UseCaseError, match="with --data DIR"):
        load(None).model()


def test_a_file_that_cannot_be_read_is_named(folder):
    (folder / "train" / "cat" / "bad.png").write_bytes(b"\x89PNG\r\n")
    heard, case = Heard(), load(folder)
    case.prepare(folder, heard)
    (warning,) = heard.warnings
    assert f"skipped {folder}/train/cat/bad.png: is no picture" in warning
    assert len(case.dataset(folder, train=True)) == 18

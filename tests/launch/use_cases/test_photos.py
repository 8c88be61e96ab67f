"""What the built-in use cases on photos promise, asked of each of them."""

import pytest
import torch
from PIL import Image

from launch.errors import UseCaseError
from launch.use_cases import resolve, use_case_names, use_case_summaries
from launch.use_cases._photo_use_case import PhotoUseCase
from tests.launch.use_cases.heard import Heard

pytestmark = pytest.mark.usefixtures("cache")
PHOTO_CASES = [name for name in use_case_names() if isinstance(resolve(name).load(), PhotoUseCase)]


@pytest.fixture
def simplebig():
    return resolve("simplebig").load()


def save_classes(folder, *names):
    for name in names:
        (folder / name).mkdir(parents=True)
        for number in range(3):
            Image.new("RGB", (30, 20), (90 * number, 50, 10)).save(folder / name / f"{number}.jpg")
    return folder


@pytest.mark.parametrize("name", PHOTO_CASES)
def test_layers_compute_what_the_model_does_with_the_same_parameters(name):
    case = resolve(name).load()
    assert case.name == name
    model = case.model().eval()
    layers = case.layers(model).eval()
    images = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        assert torch.equal(model(images), layers(images))
    assert {id(p) for p in model.parameters()} == {id(p) for p in layers.parameters()}
    assert not any(isinstance(layer, torch.nn.Sequential) for layer in layers)


@pytest.mark.parametrize(("name", "parameters"), [("simplebig", 57.0), ("complexsmall", 134.3)])
def test_models_are_those_of_the_paper(name, parameters):
    model = resolve(name).load().model()
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(parameters, abs=0.05)


def test_fresh_alexnet_sees_the_photo():
    """torchvision's own weights gave logits that hardly depend on it, and nothing was learned."""
    torch.manual_seed(0)
    model = resolve("simplebig").load().model().eval()
    with torch.no_grad():
        logits = model(torch.randn(4, 3, 224, 224))
    assert logits.std(dim=0).min() > 0.1


def test_equal_seeds_give_equal_models(simplebig):
    torch.manual_seed(3)
    one = simplebig.model().state_dict()
    torch.manual_seed(3)
    other = simplebig.model().state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_summaries_are_one_line_each():
    summaries = use_case_summaries()
    assert list(summaries) == use_case_names()
    assert all(20 < len(line) < 90 and "\n" not in line for line in summaries.values())


def test_training_is_that_of_the_paper(simplebig):
    optimizer = simplebig.optimizer([torch.nn.Parameter(torch.zeros(1))])
    assert isinstance(optimizer, torch.optim.SGD)
    assert (optimizer.defaults["lr"], optimizer.defaults["momentum"]) == (0.001, 0.9)


def test_loss_is_a_mean_and_accuracy_a_share(simplebig):
    output, target = torch.eye(3)[[0, 1, 2, 0]] * 9, torch.tensor([0, 1, 2, 2])
    each = [simplebig.loss(output[i : i + 1], target[i : i + 1]) for i in range(4)]
    assert torch.isclose(simplebig.loss(output, target), sum(each) / 4)
    assert simplebig.metrics(output, target) == {"accuracy": 0.75}


def test_photos_are_drawn_when_the_user_has_none(simplebig):
    simplebig.num_photos = 24
    simplebig.prepare(None, Heard())
    train, validation = (simplebig.dataset(None, train=train) for train in (True, False))
    assert len(train) + len(validation) == 24
    assert train.classes == ("fire", "none", "smoke")
    assert train.is_generated
    assert validation.is_generated


def test_drawn_photos_that_were_not_prepared_are_told(simplebig):
    with pytest.raises(UseCaseError, match="call the use case's prepare"):
        simplebig.dataset(None, train=True)


def test_own_photos_are_taken_from_the_users_folder(simplebig, tmp_path):
    data = save_classes(tmp_path / "data", "ash", "ember")
    simplebig.prepare(data, Heard())
    dataset = simplebig.dataset(data, train=True)
    assert dataset.classes == ("ash", "ember")
    assert not dataset.is_generated


def test_more_classes_than_outputs_are_told(simplebig, tmp_path):
    data = save_classes(tmp_path / "data", "a", "b", "c", "d")
    with pytest.raises(UseCaseError, match=r"has 4 classes .* 3 outputs: use at most 3"):
        simplebig.prepare(data, Heard())

"""Use cases of MNIST and CIFAR-10 have the models and the training of their papers."""

import pytest
import torch
from torch.nn.functional import conv2d, cross_entropy, linear, max_pool2d, relu

from launch.errors import UseCaseError
from launch.use_cases import resolve
from launch.use_cases._small_images.drawn_digits import make_drawn_set
from tests.launch.use_cases.heard import Heard

pytestmark = pytest.mark.usefixtures("cache")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("mnist_cnn", 431_080), ("mnist_resnet18", 11_172_810), ("cifar_resnet44", 658_586)],
)
def test_models_have_the_parameters_of_the_papers(name, parameters):
    model = resolve(name).load().model()
    assert sum(p.numel() for p in model.parameters()) == parameters


def test_mnist_cnn_is_the_network_of_the_papers_with_the_loss_of_its_softmax():
    """Without a ReLU, or with another pooling, it has as many parameters."""
    case = resolve("mnist_cnn").load()
    model, images, target = case.model(), torch.randn(2, 1, 28, 28), torch.tensor([3, 7])
    first, first_bias, second, second_bias, wide, wide_bias, last, last_bias = model.parameters()
    with torch.no_grad():
        hidden = max_pool2d(relu(conv2d(images, first, first_bias)), 2)
        hidden = max_pool2d(relu(conv2d(hidden, second, second_bias)), 2).flatten(1)
        output = linear(relu(linear(hidden, wide, wide_bias)), last, last_bias)
        loss = case.loss(model(images), target)
    assert (hidden.size(1), wide.size(0), output.size(1)) == (800, 500, 10)
    assert torch.allclose(loss, cross_entropy(output, target), atol=1e-6)


@pytest.mark.parametrize("name", ["mnist_cnn", "mnist_resnet18", "cifar_resnet44"])
def test_layers_compute_what_the_model_does(name):
    case = resolve(name).load()
    assert case.name == name
    model = case.model().eval()
    layers = case.layers(model).eval()
    images = torch.randn(2, 3, 32, 32) if name.startswith("cifar") else torch.randn(2, 1, 28, 28)
    with torch.no_grad():
        assert torch.equal(model(images), layers(images))
    assert {id(p) for p in model.parameters()} == {id(p) for p in layers.parameters()}


def test_resnets_are_cut_at_their_blocks():
    counts = {
        name: len(case.layers(case.model()))
        for name in ("mnist_resnet18", "cifar_resnet44")
        for case in [resolve(name).load()]
    }
    assert counts == {"mnist_resnet18": 4 + 8 + 3, "cifar_resnet44": 3 + 21 + 3}


def test_training_of_cifar_is_that_of_the_paper():
    case = resolve("cifar_resnet44").load()
    optimizer = case.optimizer([torch.nn.Parameter(torch.zeros(1))])
    settings = optimizer.defaults
    assert (settings["lr"], settings["momentum"], settings["weight_decay"]) == (0.1, 0.9, 1e-4)
    schedule = case.schedule(optimizer, 10, 4)
    rates = []
    for _ in range(40):
        rates.append(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()
    assert [rates[i] for i in (0, 19)] == [0.1, 0.1]
    assert [rates[i] for i in (20, 29, 30, 39)] == pytest.approx([0.01, 0.01, 0.001, 0.001])


@pytest.fixture
def few_drawn(monkeypatch):
    """Let `cifar_resnet44` draw few images, which is quick."""
    drawn = make_drawn_set("CIFAR-10", side=32, colours=True, num_train=40, num_test=20)
    monkeypatch.setattr("launch.use_cases.cifar_resnet44._DRAWN", drawn)
    drawn.prepare(Heard())


def test_training_images_of_cifar_are_cropped_as_in_the_paper(few_drawn):
    """Of an image that was padded by 4 pixels: 9 places in each direction."""
    case = resolve("cifar_resnet44").load()
    train, test = (case.dataset(None, train=train) for train in (True, False))
    pixels = torch.full((1, 3, 32, 32), 255, dtype=torch.uint8)
    corner = train.finish(pixels, torch.tensor([[0.0, 0.99, 0.9]]))[0]
    black = corner == corner[:, :1, -1:]
    rows, columns = black[0].all(1), black[0].all(0)
    assert (int(rows.sum()), int(columns.sum())) == (4, 4)
    assert train.draw(1) is not None
    assert test.draw(1) is None


@pytest.mark.parametrize(("name", "momentum"), [("mnist_cnn", 0.0), ("mnist_resnet18", 0.9)])
def test_training_of_mnist_is_plain_gradient_descent_or_has_momentum(name, momentum):
    optimizer = resolve(name).load().optimizer([torch.nn.Parameter(torch.zeros(1))])
    assert type(optimizer) is torch.optim.SGD
    settings = optimizer.defaults
    assert (settings["lr"], settings["momentum"], settings["weight_decay"]) == (0.01, momentum, 0)


def test_cifar_resnet44_may_take_the_first_images_and_a_fifth_as_many_for_testing(few_drawn):
    case = resolve("cifar_resnet44,images=25").load()
    whole = resolve("cifar_resnet44").load().dataset(None, train=False)
    train, test = (case.dataset(None, train=train) for train in (True, False))
    assert (len(train), len(test), len(whole)) == (25, 5, 20)
    assert torch.equal(test[4][0], whole[4][0])
    assert test.pixels_name() != whole.pixels_name()


@pytest.mark.parametrize("images", [4, 50_001])
def test_cifar_resnet44_refuses_more_images_than_there_are_and_too_few_to_test_with(images):
    with pytest.raises(UseCaseError, match=f"images={images}: use a number from 5 to 50000"):
        resolve(f"cifar_resnet44,images={images}").load()

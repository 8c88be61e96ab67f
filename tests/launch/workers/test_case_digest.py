"""What a use case is known by: not where it lies, but what it is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from launch.reports import Described
from launch.workers.group import ReportReceived, WorkerGroup, explain_failure
from launch.workers.task import Purpose, Task
from launch.workload import Workload

CASE = """
import torch
from layers import make_layer
from torch import nn


class Data(torch.utils.data.Dataset):
    def __init__(self, data):
        self.values = torch.load(data)

    def __len__(self):
        return len(self.values)

    def __getitem__(self, index):
        return self.values[index], 0


class Case:
    name = "case"
    def model(self):
        return make_layer()
    def dataset(self, data, *, train):
        return Data(data)
    def loss(self, output, target):
        from losses import cross_entropy
        return cross_entropy(output.flatten(1), target)
    def optimizer(self, parameters):
        return torch.optim.SGD(parameters, lr=0.1)
"""
LAYERS = "from torch import nn\n\ndef make_layer():\n    return nn.Linear(4, 3)\n"
LOSSES = "from torch.nn.functional import cross_entropy\n"


@pytest.fixture(scope="module")
def digest(server, tmp_path_factory) -> Callable[[Path, Path], str]:
    """Describe a use case in a process of its own, and give its digest."""
    logs = tmp_path_factory.mktemp("logs")

    def describe(folder: Path, data: Path) -> str:
        workload = Workload(use_case=f"{folder}/mycase.py:Case", data=str(data))
        task = Task(purpose=Purpose.DESCRIBE, workload=workload)
        with WorkerGroup(server, [task], logs) as group:
            while event := group.next_event():
                assert (failure := explain_failure(group, event)) is None, failure
                match event:
                    case ReportReceived(report=Described(facts=facts)):
                        return facts.digest
        raise AssertionError("it was not described")

    return describe


@pytest.fixture(scope="module")
def known(digest, tmp_path_factory) -> tuple[Path, Path, str]:
    """A folder with a use case, its data, and their digest."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "mycase.py").write_text(CASE)
    (folder / "layers.py").write_text(LAYERS)
    (folder / "losses.py").write_text(LOSSES)
    data = tmp_path_factory.mktemp("given") / "data"
    torch.save(torch.zeros(8, 4), data)
    return folder, data, digest(folder, data)


def test_copy_in_another_folder_with_its_data_elsewhere_is_the_same(known, digest, tmp_path):
    folder, data, before = known
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert digest(copy, Path(shutil.copy(data, tmp_path))) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        pytest.param("mycase.py", "lr=0.1", "lr=0.2", id="its own file"),
        pytest.param("layers.py", "(4, 3)", "(4, 3, bias=False)", id="a module that it imports"),
        pytest.param("layers.py", "\n\n", "\n\n# another release\n", id="code of that module"),
        pytest.param("losses.py", "\n", "  # another one\n", id="a module that its loss imports"),
    ],
)
def test_changed_code_is_another_use_case(known, digest, tmp_path, file, old, new):
    folder, data, before = known
    path = shutil.copytree(folder, tmp_path / "copy") / file
    path.write_text(path.read_text().replace(old, new, 1))
    assert digest(path.parent, data) != before


def test_amount_and_shape_of_the_data_count_and_their_values_do_not(known, digest, tmp_path):
    folder, _, before = known
    for tensor, is_same in (
        (torch.ones(8, 4), True),
        (torch.zeros(9, 4), False),
        (torch.zeros(8, 1, 4), False),
    ):
        torch.save(tensor, tmp_path / "data")
        assert (digest(folder, tmp_path / "data") == before) is is_same

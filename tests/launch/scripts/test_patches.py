"""Patches of a script: what they change in it, and that it learns as before."""

from __future__ import annotations

import ast
import json
import math
import os
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.utils.data

from launch.errors import InvalidPlanError, ScriptRefusedError
from launch.plan import Plan
from launch.scripts import patches, shim
from launch.scripts.environment import make_start
from launch.scripts.program import Program
from launch.scripts.recognition import check_losses
from launch.scripts.running_script import RunningScript
from probes.hardware import Hardware

TRAIN = """
import copy, random
import numpy, torch

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(288, 4)
)
model.volume = torch.nn.Parameter(torch.zeros(1, 1, 1, 1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
scale = 1 + random.random() + numpy.random.rand()
pictures = scale * torch.randn(4096, 3, 8, 8)
data = torch.utils.data.TensorDataset(pictures, torch.randint(4, (4096,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
for number, (images, labels) in enumerate(loader):
    made = model(images)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(made, labels).backward()
    optimizer.step()
    if number == 2:
        copied = copy.deepcopy(model)
        with torch.no_grad():
            copied[3].weight.zero_(), copied[3].bias.fill_(1)
        inner = []
        model[3].register_forward_hook(lambda *found: inner.append(found[2].dtype))
        copied_is_itself = bool((copied(images) == 1).all())
        model(images)
        is_last = model[0].weight.is_contiguous(memory_format=torch.channels_last)
        print(loader.num_workers, loader.persistent_workers, is_last, inner[0], made.dtype)
        print("copied", copied_is_itself, "compiled", model._compiled_call_impl is not None)
        print(type(model).__call__ is torch.nn.Module.__call__, torch.nn.Module.__call__.__name__)
"""
PLAN = Plan(strategy="script", node_batch=8, threads_per_process=2)
PATCHES = {
    "patch_loader_workers": 1,
    "patch_persistent_workers": True,
    "patch_channels_last": True,
    "patch_autocast": "bf16",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("patched")
    (made / "train.py").write_text(TRAIN)
    return made


def run(folder: Path, node: Hardware, plan: Plan) -> tuple[str, tuple[float | None, ...]]:
    program = Program.parse([sys.executable, "train.py"], cores=2)
    with RunningScript(program, plan, node, folder=folder, seed=0) as script:
        script.make_steps(1, time_limit_s=120.0)
        script.make_steps(4, time_limit_s=120.0)
        return script.output_tail, script.first_losses


@pytest.fixture(scope="module")
def own(folder: Path, two_cores: Hardware) -> tuple[str, tuple[float | None, ...]]:
    return run(folder, two_cores, PLAN)


def test_script_without_patches_is_the_users_own(own):
    output, losses = own
    assert output.startswith("0 False False torch.float32 torch.float32\n")
    assert "copied True compiled False" in output
    assert len(losses) == 3


def test_patches_change_loader_and_model_and_not_what_is_learned(folder, two_cores, own):
    """The script sets no seed: it is given one, so that its losses can be compared."""
    output, losses = run(folder, two_cores, replace(PLAN, options=PATCHES))
    assert output.splitlines()[-3:-1] == [
        "1 True True torch.bfloat16 torch.float32",
        "copied True compiled False",
    ]
    assert losses != own[1]
    assert losses == pytest.approx(own[1], rel=0.01)
    check_losses(losses, own[1], list(PATCHES))


@pytest.mark.long
def test_model_of_a_script_is_compiled(folder, two_cores, own):
    output, losses = run(folder, two_cores, replace(PLAN, options={"patch_compile": True}))
    assert "copied True compiled True" in output
    assert losses == pytest.approx(own[1], rel=0.001)


def test_patch_that_changes_nothing_is_refused(folder, two_cores, tmp_path):
    source = TRAIN.replace("torch.nn.Conv2d(3, 8, 3)", "torch.nn.Flatten()")
    (tmp_path / "train.py").write_text(source.replace("288", "192"))
    plan = replace(PLAN, options={"patch_channels_last": True})
    with pytest.raises(ScriptRefusedError, match="patch_channels_last changes nothing"):
        run(tmp_path, two_cores, plan)


@pytest.mark.parametrize(
    ("patched", "is_refused"),
    [((2.3, None), False), ((2.4, 2.2), False), ((2.9,), True), ((math.nan,), True)],
)
def test_first_losses_are_held_against_those_of_the_own_script(patched, is_refused):
    own = (2.3, 2.2, 2.1)
    if not is_refused:
        check_losses(patched, own, ["patch_compile"])
        return
    with pytest.raises(ScriptRefusedError, match="step 1 with patch_compile"):
        check_losses(patched, own, ["patch_compile"])


@pytest.mark.parametrize("own", [(), (None, None), (math.nan,)])
def test_losses_of_another_batch_or_none_are_held_against_nothing(own):
    check_losses((9.0, 9.0), own, ["patch_compile"])


@pytest.mark.parametrize("patched", [(), (None, 2.2)])
def test_patched_script_without_a_loss_to_compare_is_refused(patched):
    with pytest.raises(ScriptRefusedError, match=r"no loss seen .* with patch_compile"):
        check_losses(patched, (2.3, None), ["patch_compile"])


@pytest.mark.parametrize(
    ("words", "options", "line"),
    [
        (["python", "train.py"], {"patch_moon": 1}, "patch_moon=1: choose one of patch_loader_w"),
        (["python", "train.py"], {"patch_compile": "yes"}, "patch_compile=yes: choose one of True"),
        (["python", "train.py"], {"patch_pin_memory": 1}, "patch_pin_memory=1"),
        (["sleep", "1"], {"patch_compile": True}, "patch_compile: only a Python program"),
    ],
)
def test_patch_that_cannot_be_made_is_refused(two_cores, words, options, line):
    program = Program(arguments=tuple(words))
    with pytest.raises(InvalidPlanError, match=line):
        make_start(program, replace(PLAN, options=options), two_cores)


def test_launched_program_is_patched_and_not_watched(folder, two_cores):
    program = Program(arguments=("python", "train.py"))
    start = make_start(program, replace(PLAN, options=PATCHES), two_cores)
    assert start.command == ("python", "train.py")
    assert start.started_command[1].endswith("shim.py")
    assert "address" not in start.started_environment["DDLPLAN_SCRIPT"]
    assert "DDLPLAN_SCRIPT" not in start.environment  # which launch --dry-run shows


def test_loader_of_a_script_has_no_more_workers_and_pins_its_memory(
    monkeypatch: pytest.MonkeyPatch,
):
    """What only loaders with workers may have is an error without them."""

    class Loader(torch.utils.data.DataLoader[int]):
        pass

    monkeypatch.setattr(patches, "applied", set())
    module = SimpleNamespace(DataLoader=Loader, IterableDataset=torch.utils.data.IterableDataset)
    [patch] = patches.actions({"loader_workers": 0, "pin_memory": True}).values()
    patch[0](module)
    loader = Loader([1, 2], num_workers=2, prefetch_factor=4, persistent_workers=True, timeout=9)
    assert (loader.num_workers, loader.prefetch_factor, loader.timeout) == (0, None, 0)
    assert (loader.persistent_workers, loader.pin_memory) == (False, True)
    assert patches.applied == {"loader_workers", "pin_memory"}


def test_patches_are_found_beside_the_shim_whatever_its_folder_is_called(tmp_path):
    """The story: `shim.py` became `patches.py` in the name of the folder, too."""
    folder = tmp_path / "old shim.py"
    folder.mkdir()
    for module in (shim, patches):
        shutil.copy(module.__file__, folder)
    code = "import random; print(random.random())"
    done = subprocess.run(
        [sys.executable, str(folder / "shim.py"), "-c", code],
        env={**os.environ, shim.VARIABLE: json.dumps({"seed": 0})},
        capture_output=True,
        check=True,
        text=True,
    )
    assert float(done.stdout) == random.Random(0).random()


@pytest.mark.parametrize("module", [shim, patches])
def test_what_runs_in_the_users_python_is_written_for_old_ones(module):
    ast.parse(Path(module.__file__).read_text(), feature_version=(3, 8))

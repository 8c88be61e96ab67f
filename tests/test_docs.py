"""What the documents show works, and what they name is there."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
import torch
from PIL import Image

from launch.data.pictures import Pictures
from launch.use_cases import resolve

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples/README.md",
    ROOT / "bench/README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "bench/results").glob("*.md")),
)
FLOORS = ("probes", "launch", "planner")
FOREIGN = {"PostgreSQL", "PyTorch", "SQLAlchemy"}
"""Names with capitals inside that are none of ours."""


def code_of(document: str, number: int = -1) -> str:
    """Give a Python example of a document, by default the last one."""
    return re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)[number]


def anchors_of(document: Path) -> set[str]:
    """Give the headings of a document as links name them."""
    heads = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def names_in(document: Path) -> Iterator[str]:
    """Give the paths and modules of ours that a document names; those with a <gap> are none."""
    text = document.read_text()
    yield from re.findall(
        rf"(?<![\w/.<])((?:{'|'.join(FLOORS)}|tests|bench|docs)/[\w/.-]*\w/?)(?![\w/.*<])", text
    )
    for name in re.findall(rf"`((?:{'|'.join(FLOORS)})(?:\.\w+)+)`", text):
        if name != "planner.db":
            yield name.replace(".", "/")


def is_there(name: str) -> bool:
    """Tell whether there is a file, a folder or a module of a name, or a thing in a module."""
    path = ROOT / name
    return any(p.exists() for p in (path, path.with_suffix(".py"), path.parent.with_suffix(".py")))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document):
    for link in re.findall(r"\]\(([^)]+)\)", document.read_text()):
        if link.startswith("https://"):
            continue
        name, _, anchor = link.partition("#")
        target = document.parent / name if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_path_and_module_that_a_document_names_is_there(document):
    assert [name for name in names_in(document) if not is_there(name)] == []


def test_searches_that_are_shown_for_an_accuracy_keep_the_use_cases_own_batch():
    """The commands trained with up to 64 times the batch that the accuracy is promised for."""
    page = (ROOT / "docs/use-cases.md").read_text()
    tune = r"^ddlplan tune +--use-case (\w+) .*--batch-size (\d+)$"
    shown = {name: int(batch) for name, batch in re.findall(tune, page, re.MULTILINE)}
    promised = re.findall(r"^`(\w+)` (?:should reach|reaches)", page, re.MULTILINE)
    assert len(promised) == 2
    assert shown == {name: resolve(name).load().default_batch for name in promised}


def test_every_folder_has_its_row_on_the_page_of_the_house():
    page = (ROOT / "docs/house.md").read_text()
    folders = {file.parent for floor in FLOORS for file in (ROOT / floor).rglob("*.py")}
    assert [f for f in sorted(folders) if f"| `{f.relative_to(ROOT)}/` |" not in page] == []


def test_files_functions_and_classes_of_the_page_of_the_house_are_there():
    page = (ROOT / "docs/house.md").read_text()
    files = [file for floor in FLOORS for file in (ROOT / floor).rglob("*.py")]
    names = {file.name for file in files}
    assert [
        name for name in re.findall(r"(?<!/)\b(?!mycase|test_)\w+\.py\b", page) if name not in names
    ] == []
    defined = set(re.findall(r"\b(?:def|class) (\w+)", "".join(f.read_text() for f in files)))
    called = set(re.findall(r"\b(\w+)\(\)", page)) | set(
        re.findall(r"\b([A-Z]\w+[a-z][A-Z]\w+)\b", page)
    )
    assert called - defined - FOREIGN == set()


def test_identifiers_of_the_table_of_words_are_in_the_code():
    page = (ROOT / "docs/house.md").read_text()
    table = page.partition("\n## Words\n")[2].partition("\n## ")[0]
    cells = re.findall(r"^\| [^|]+ \| ([^|]+) \|", table, re.MULTILINE)
    named = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    files = [file for floor in FLOORS for file in (ROOT / floor).rglob("*.py")]
    known = {name for file in files for name in re.findall(r"\w+", file.read_text())}
    assert len(named) > 30
    assert [name for name in named if name not in known] == []


def test_every_strategy_has_its_paragraph_and_its_row():
    from launch.strategies import strategy_names

    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs/strategies.md").read_text()
    for name in strategy_names():
        assert f"`{name}`" in readme
        assert f"| `{name}` |" in page
        assert f"**`{name}`**" in page


def test_every_setting_of_a_plan_has_its_row():
    from launch.plan import Plan

    page = (ROOT / "docs/plans.md").read_text()
    for name in Plan(strategy="threads", node_batch=1).__dataclass_fields__:
        assert f"| `{name}` |" in page


def test_every_exit_code_of_ours_has_its_row():
    import launch.errors
    import planner.errors
    import probes.errors
    from planner.exit_codes import classify_error

    things = [vars(module).values() for module in (launch.errors, planner.errors, probes.errors)]
    kinds = [k for k in chain(*things) if isinstance(k, type) and issubclass(k, Exception)]
    found = [classify_error(kind.__new__(kind)) for kind in kinds]
    codes = {verdict[0] for verdict in found if verdict is not None and verdict[0] < 128}
    page = (ROOT / "docs/commands.md").read_text()
    assert len(codes) > 5
    assert [code for code in sorted(codes) if f"\n| {code} | " not in page] == []
    assert "\n| 128 + N | " in page


def test_every_command_with_json_has_its_row_and_every_row_its_command():
    import typer.main

    from planner.cli.app import app

    found = set()
    pending = [((), typer.main.get_command(app))]
    while pending:
        words, command = pending.pop()
        if any("--json" in option.opts for option in command.params):
            found.add(" ".join(words))
        for name, inner in getattr(command, "commands", {}).items():
            pending.append(((*words, name), inner))
    table = (ROOT / "docs/commands.md").read_text().partition("\n## JSON\n")[2]
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)
    rows = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert len(found) > 30
    assert sorted(found - rows) == []
    assert sorted({row.partition(" --")[0] for row in rows} - found) == []


def test_every_part_of_a_use_case_has_its_row():
    from launch.use_cases._base import UseCase

    page = (ROOT / "docs/own-model.md").read_text()
    for name in vars(UseCase).keys() | UseCase.__annotations__.keys():
        assert name.startswith("_") or re.search(rf"^\| `{name}(\(.*\))?` \|", page, re.MULTILINE)


def test_changes_name_the_version_of_todays_database():
    from planner.store.databases.migrations import STEPS

    (version,) = re.findall(r"brought up to version (\d+)", (ROOT / "CHANGELOG.md").read_text())
    assert int(version) == len(STEPS) + 1


@pytest.mark.parametrize("document", ["README.md", "docs/own-model.md"])
def test_own_model_of_the_readme_trains_and_its_weights_are_loaded_as_shown(
    document, tmp_path, monkeypatch
):
    from launch.checkpoints.weights import save_weights
    from launch.use_cases import resolve

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mycase.py").write_text(code_of("README.md", 0))
    case = resolve("mycase.py:MyCase").load()
    model = case.model()
    samples = case.dataset(None, train=True)
    batch, target = torch.utils.data.default_collate([samples[0], samples[1]])
    case.loss(model(batch), target).backward()
    case.optimizer(model.parameters()).step()
    (tmp_path / "runs" / "1").mkdir(parents=True)
    save_weights(model, tmp_path / "runs" / "1" / "weights.safetensors")
    names: dict[str, object] = {}
    try:
        exec(code_of(document), names)
    finally:
        sys.modules.pop("mycase", None)
    loaded = names["model"]
    assert isinstance(loaded, torch.nn.Module)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)


def test_host_file_of_the_page_on_hosts_is_read(tmp_path):
    from launch.hosts.host_file import read_host_file

    (text,) = re.findall(
        r"```\n(# hosts.txt.*?)```", (ROOT / "docs/hosts.md").read_text(), re.DOTALL
    )
    (tmp_path / "hosts.txt").write_text(text)
    hosts = read_host_file(tmp_path / "hosts.txt").hosts
    names = ["node1", "node2", "gpu3", "gpu04", "gpu05", "gpu06", "gpu09", "2001:db8::1"]
    assert [host.name for host in hosts] == names
    assert (hosts[1].port, hosts[2].user) == (2222, "alice")


def test_data_set_of_the_input_page_can_be_decoded_once(tmp_path):
    names: dict[str, type] = {"__name__": "pictures"}
    exec(code_of("docs/input.md"), names)
    for name, colour in (("cat_1", "red"), ("dog_1", "blue")):
        Image.new("RGB", (90, 70), colour).save(tmp_path / f"{name}.jpg")
    pictures = names["Folder"](tmp_path, ["cat", "dog"])
    assert isinstance(pictures, Pictures)
    for index in range(len(pictures)):
        torch.manual_seed(3)
        sample, target = pictures[index]
        torch.manual_seed(3)
        drawn = pictures.draw(1)
        pixels = torch.from_numpy(pictures.pixels(index)).permute(2, 0, 1)[None]
        assert torch.equal(sample, pictures.finish(pixels, drawn)[0])
        assert target == pictures.target(index) == index
    assert sample.shape == (3, 64, 64)

"""What the documents show works."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from PIL import Image

from launch.data.pictures import Pictures

ROOT = Path(__file__).parents[1]


def test_links_between_documents_lead_somewhere():
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert link.startswith("https://") or (document.parent / link).exists(), link


def test_every_strategy_has_its_paragraph_and_its_row():
    from launch.strategies import strategy_names

    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs/strategies.md").read_text()
    for name in strategy_names():
        assert f"| `{name}` |" in readme
        assert f"**`{name}`**" in page


def test_every_setting_of_a_plan_is_in_the_readme():
    from launch.plan import Plan

    readme = (ROOT / "README.md").read_text()
    said = {"strategy", "processes", "threads_per_process", "node_batch", "micro_batches"}
    for name in Plan(strategy="threads", node_batch=1).to_json().keys() - said:
        assert f"`{name}`" in readme or name in ("replicas", "devices"), name


def test_data_set_of_the_input_page_can_be_decoded_once(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/input.md").read_text(), re.DOTALL)
    names: dict[str, type] = {"__name__": "pictures"}
    exec(code, names)
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

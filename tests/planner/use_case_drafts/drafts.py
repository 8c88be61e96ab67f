"""Use cases that are drafted from scripts, as text and loaded."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from launch.use_cases._adapter import adapt_use_case
from planner.use_case_drafts.drafting import draft_use_case
from planner.use_case_drafts.writing import file_of

EXAMPLES = Path(__file__).parents[3] / "examples"


def draft_of(text: str, folder: Path) -> str:
    script = folder / "my train.py"
    script.write_text(text)
    return file_of(draft_use_case(script))


def load_case(text: str, folder: Path):
    file = folder / "case_of_script.py"
    file.write_text(text)
    spec = spec_from_file_location(f"case_{folder.name}", file)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    (kind,) = [kind for kind in vars(module).values() if hasattr(kind, "optimizer")]
    return adapt_use_case(kind, "drafted")

"""What of torch the watching of steps needs, as a package: torch itself takes seconds to load."""

from __future__ import annotations

from pathlib import Path

_OPTIMIZER = """
hooks = []
def register_optimizer_step_post_hook(hook):
    hooks.append(hook)
class SGD:
    def step(self):
        for hook in hooks: hook(self, (), {})
"""


def write_torch(folder: Path) -> None:
    """Write it into a folder, where a script finds it in place of torch."""
    package = folder / "torch" / "optim"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "optimizer.py").write_text(_OPTIMIZER)

"""What of torch the watching of steps needs, as a package: torch itself takes seconds to load."""

from __future__ import annotations

from pathlib import Path

_OPTIMIZER = """
hooks = []
def register_optimizer_step_post_hook(hook):
    hooks.append(hook)
class Optimizer: pass
class SGD(Optimizer):
    def step(self):
        for hook in hooks: hook(self, (), {})
"""

_TORCH = """
def is_grad_enabled(): return True
def manual_seed(seed): pass
"""
_DATALOADER = """
class Batch:
    def __init__(self, size): self.shape = size if isinstance(size, tuple) else (size,)
class _BaseDataLoaderIter:
    def __init__(self, sizes): self.sizes = iter(sizes)
    def __iter__(self): return self
    def __next__(self): return Batch(next(self.sizes))
class DataLoader:
    num_workers = 0
    def __init__(self, sizes): self.sizes, self.batch_size = sizes, sizes[0]
    def __iter__(self): return _BaseDataLoaderIter(self.sizes)
"""

_TENSOR = """
class Tensor:
    def __init__(self, value): self.value = value
    def __float__(self): return self.value
    def numel(self): return 1
    def detach(self): return self
    def backward(self): pass
"""


def write_torch(folder: Path) -> None:
    """Write it into a folder, where a script finds it in place of torch."""
    package = folder / "torch" / "optim"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text(_TORCH)
    (package.parent / "_tensor.py").write_text(_TENSOR)
    (package / "__init__.py").touch()
    (package / "optimizer.py").write_text(_OPTIMIZER)
    data = folder / "torch" / "utils" / "data"
    data.mkdir(parents=True)
    (data.parent / "__init__.py").touch()
    (data / "__init__.py").touch()
    (data / "dataloader.py").write_text(_DATALOADER)

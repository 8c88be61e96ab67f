"""Python module of a plan: what a script of one's own imports and calls, without ddlplan."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from launch.plan import Plan
from launch.process_environment import allocators
from launch.strategies.gpu_data import BENCHMARK
from planner.exports.head import head_lines, settings_left
from planner.exports.pinning import pinning_text
from planner.plans.plain_commands import plain_commands
from planner.plans.stored_plan import StoredPlan

_LOCAL_RANKS = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
"""Where torchrun, Open MPI and Slurm say which process of its machine this one is."""

_RETAIN = """
# Keep freed memory, else each step faults it in again: mallopt(3).
for _setting, _value in ((-8, 1), (-1, 2**31 - 1), (-2, 64 << 20), (-4, 0)):
    ctypes.CDLL(None).mallopt(_setting, _value)
"""


def python_module(stored: StoredPlan, stale_reasons: Sequence[str]) -> str:
    """Give a short module that applies a plan in the process that imports it."""
    return "".join(f"{line}\n" for line in _lines(stored, stale_reasons))


def _lines(stored: StoredPlan, stale_reasons: Sequence[str]) -> Iterator[str]:
    plan = stored.plan
    yield from (f"# {line}" for line in head_lines(stored, stale_reasons))
    yield "# Import it before torch computes anything; it needs no ddlplan. Started by, such as:"
    yield f"#   {plain_commands(plan)['torchrun']}"
    yield "# Yours to use: BATCH samples in MICRO_BATCHES, LOADER_WORKERS, model = prepare(model),"
    yield "# `with autocast():` around forward pass and loss, optimizer = SGD(..., **OPTIMIZER)."
    if plan.lr_scaling != "none":
        yield "# LR_SCALING: how the learning rate goes with the batch of all processes."
    if left := settings_left(plan):
        yield f"# Not part of it, as only ddlplan does it: {'; '.join(left)}."
    retains = plan.allocator == "retain"
    yield from (["import ctypes"] if retains else [])
    yield pinning_text()
    yield from ("", "import torch", "")
    yield f"PROCESSES, THREADS = {plan.processes}, {plan.threads_per_process}"
    yield f"_RANKS = {json.dumps(_LOCAL_RANKS)}"
    yield "LOCAL_RANK = int(next(filter(None, map(os.environ.get, _RANKS)), 0))"
    yield f"BATCH = {_batch(plan)}"
    yield f"MICRO_BATCHES, LOADER_WORKERS = {plan.micro_batches}, {plan.loader_workers}"
    yield f'LR_SCALING = "{plan.lr_scaling}"'
    yield f"OPTIMIZER = {'dict(fused=True)' if plan.fused_optimizer else 'dict()'}"
    is_last = plan.memory_format == "channels_last"
    yield f"MEMORY_FORMAT = torch.{'channels_last' if is_last else 'contiguous_format'}"
    yield f"DEVICE = torch.device({_device(plan)})"
    yield "pin(LOCAL_RANK, PROCESSES, THREADS)"
    yield "torch.set_num_threads(THREADS)"
    yield "torch.set_num_interop_threads(1)"
    if plan.precision == "bf16_internal":
        yield 'torch.backends.mkldnn.conv.fp32_precision = "bf16"'
        yield 'torch.backends.mkldnn.matmul.fp32_precision = "bf16"'
    if plan.options.get(BENCHMARK):
        yield "torch.backends.cudnn.benchmark = True"
    if retains:
        yield _RETAIN.rstrip("\n")
    elif allocators.is_preloaded(plan.allocator):
        # Bytes, as names of files need not be text.
        yield f'if b"lib{plan.allocator}" not in Path("/proc/self/maps").read_bytes():'
        yield f'    print("{plan.allocator} is not loaded: LD_PRELOAD, see above")'
    yield ""
    yield ""
    yield "def prepare(model):"
    if is_last:  # else tensors stay as the script made them
        yield "    for tensor in (*model.parameters(), *model.buffers()):"
        yield "        if tensor.dim() == 4:"
        yield "            tensor.data = tensor.data.to(memory_format=MEMORY_FORMAT)"
    yield f"    return {'torch.compile(model.to(DEVICE))' if plan.compile else 'model.to(DEVICE)'}"
    yield ""
    yield ""
    yield "def autocast():"
    is_on = plan.precision == "bf16"
    yield f"    return torch.autocast(DEVICE.type, torch.bfloat16, enabled={is_on})"


def _batch(plan: Plan) -> str:
    """Give a process's part of the batch; stages of one replica share theirs."""
    parts = min(plan.processes, plan.replicas)
    batch, rest = divmod(plan.node_batch, parts)
    return f"{batch} + (LOCAL_RANK * {parts} // PROCESSES < {rest})" if rest else str(batch)


def _device(plan: Plan) -> str:
    """Give the device of a process, of those that CUDA_VISIBLE_DEVICES leaves it."""
    return '"cuda", LOCAL_RANK' if plan.gpus else '"cpu"'

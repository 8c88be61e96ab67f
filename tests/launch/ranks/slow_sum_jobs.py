"""Jobs of two nodes whose sums are slow; they run in one mpirun, because each start loads torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import hidden_cases
import late_cases
from jobs_of_nodes import Spec

from launch.plan import Plan

HIDDEN_CASES, LATE_CASES = Path(hidden_cases.__file__), Path(late_cases.__file__)
RANK = Path(__file__).with_name("rank_with_slow_sums.py")

PAIR = Plan(strategy="processes", processes=2, replicas=2, node_batch=5)
PARTS = replace(PAIR, micro_batches=2, node_batch=4)
ALONE = Plan(strategy="sequential", node_batch=3)
THREADS = Plan(strategy="threads", threads_per_process=2, replicas=2, node_batch=3)

# The other layers are trained in one process, which takes less: see test_hidden_uses.py.
IS_LATE = {
    "ViewFromInitCase": False,
    "DetachFromInitCase": False,
    "PicturesFromInitCase": False,
    "TiedCase": True,
    "UsedByLossCase": True,
    "KeptByOneCase": False,
}
HIDDEN = {
    name: Spec(name, [PAIR, THREADS if name == "DetachFromInitCase" else ALONE], file=HIDDEN_CASES)
    for name in IS_LATE
} | {
    # The parameter moves twice: into this memory format, and into shared memory.
    "PicturesFromInitCase": Spec(
        "PicturesFromInitCase",
        [replace(plan, memory_format="channels_last") for plan in (PAIR, ALONE)],
        file=HIDDEN_CASES,
    )
}
LATE = {
    "processes": Spec("Late", [PAIR, PARTS], file=LATE_CASES),
    "threads": Spec("Late", [PAIR, THREADS], file=LATE_CASES),
    "unseen": Spec("Unseen", [PAIR, PARTS], file=LATE_CASES),
    "seen later": Spec("SeenLater", [PAIR, PARTS], file=LATE_CASES),
    "scripted": Spec("Scripted", [PAIR, PARTS], file=LATE_CASES),
}

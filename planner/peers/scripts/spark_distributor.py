"""Spark's TorchDistributor: runs the DDP script of torchrun, in the driver or as Spark's tasks."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.ml.torch.distributor import TorchDistributor

from planner.peers.scripts._spark_session import add_spark_options, open_session
from planner.peers.scripts._task import make_parser


def main() -> None:
    """Start Spark and train."""
    parser = make_parser()
    add_spark_options(parser)
    known = vars(parser.parse_args())
    own = ("master", "driver_host", "processes")
    options = _without(sys.argv[1:], {"--" + name.replace("_", "-") for name in own})
    with open_session(known):
        distributor = TorchDistributor(
            num_processes=known["processes"],
            local_mode=known["master"].startswith("local"),
            use_gpu=False,
        )
        distributor.run(str(Path(__file__).with_name("torchrun_ddp.py")), *options)


def _without(words: list[str], options: set[str]) -> list[str]:
    """Leave options with their values out of a command line."""
    left, skipped = [], False
    for word in words:
        if skipped:
            skipped = False
        elif word in options:
            skipped = True
        else:
            left.append(word)
    return left


if __name__ == "__main__":
    main()

"""Spark's TorchDistributor: runs the DDP script of torchrun, in the driver or as Spark's tasks."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.ml.torch.distributor import TorchDistributor

from planner.peers.scripts._spark_session import add_spark_options, open_session


def main() -> None:
    """Start Spark and train."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_spark_options(parser)
    known, options = parser.parse_known_args()
    with open_session(vars(known)):
        distributor = TorchDistributor(
            num_processes=known.processes,
            local_mode=known.master.startswith("local"),
            use_gpu=False,
        )
        distributor.run(str(Path(__file__).with_name("torchrun_ddp.py")), *options)


if __name__ == "__main__":
    main()

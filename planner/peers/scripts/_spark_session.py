"""Session of Spark, on this host alone or on a standalone cluster."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession


def add_spark_options(parser: argparse.ArgumentParser) -> None:
    """Add what a session needs to know."""
    parser.add_argument("--master", required=True)
    parser.add_argument("--driver-host", default="127.0.0.1")
    parser.add_argument("--processes", type=int, required=True, help="on all hosts")


@contextmanager
def open_session(arguments: dict[str, Any]) -> Iterator[Any]:
    """Open a session. It listens on no more addresses than it must."""
    builder = SparkSession.builder.master(arguments["master"]).appName("compare")
    settings = {
        "spark.driver.host": arguments["driver_host"],
        "spark.driver.bindAddress": arguments["driver_host"],
        "spark.driver.memory": "4g",
        # Gradients of large models come back to the driver, all at once.
        "spark.driver.maxResultSize": "0",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # A peer stands still while others have their turn.
        "spark.network.timeout": "3600s",
        "spark.executor.heartbeatInterval": "600s",
        "spark.executor.memory": "4g",
        "spark.task.cpus": "1",
        # TorchDistributor asks after this time whether all hosts have joined by now, 40 times.
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "5s",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        yield session
    finally:
        session.stop()

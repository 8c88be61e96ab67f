"""Python API: probe, tune, launch and the stored plans, for notebooks and services.

The commands only parse, call this, and print. Nothing here prints: progress goes to a `Listener`,
failures are exceptions of `planner.errors` and `launch.errors`. What is imported
here is the whole surface, with `grids` and `reports`, which need more than the other parts; what a
name needs is imported when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launch.errors import LaunchError as LaunchError
    from launch.job import CheckpointConfig as CheckpointConfig
    from launch.use_cases import make_workload as make_workload
    from launch.workload import Workload as Workload
    from planner.api import jobs as jobs
    from planner.api import machines as machines
    from planner.api import plans as plans
    from planner.api import studies as studies
    from planner.api import sweeps as sweeps
    from planner.api import together as together
    from planner.api import trainings as trainings
    from planner.api.comparing import compare as compare
    from planner.api.launching import LaunchResult as LaunchResult
    from planner.api.launching import launch as launch
    from planner.api.launching import prepare_launch as prepare_launch
    from planner.api.probing import NodeProbe as NodeProbe
    from planner.api.probing import ProbeResult as ProbeResult
    from planner.api.probing import probe as probe
    from planner.api.tuning import NodeTuneResult as NodeTuneResult
    from planner.api.tuning import TuneResult as TuneResult
    from planner.api.tuning import tune as tune
    from planner.cancellation import Cancellation as Cancellation
    from planner.errors import CancelledError as CancelledError
    from planner.errors import PlannerError as PlannerError
    from planner.jobs.hosts import HostAccess as HostAccess
    from planner.jobs.hosts import Hosts as Hosts
    from planner.jobs.launch_request import LaunchRequest as LaunchRequest
    from planner.jobs.prepared_launch import PreparedLaunch as PreparedLaunch
    from planner.peer_runs.request import CompareRequest as CompareRequest
    from planner.peer_runs.result import Comparison as Comparison
    from planner.sweeps.sweep_request import SweepRequest as SweepRequest
    from planner.trials.reports import Listener as Listener
    from planner.tuning.tune_request import TuneRequest as TuneRequest

_NAMES = {
    "launch.errors": "LaunchError",
    "launch.job": "CheckpointConfig",
    "launch.use_cases": "make_workload",
    "launch.workload": "Workload",
    "planner.api.comparing": "compare",
    "planner.api.launching": "LaunchResult launch prepare_launch",
    "planner.api.probing": "NodeProbe ProbeResult probe",
    "planner.api.tuning": "NodeTuneResult TuneResult tune",
    "planner.cancellation": "Cancellation",
    "planner.errors": "CancelledError PlannerError",
    "planner.jobs.hosts": "HostAccess Hosts",
    "planner.jobs.launch_request": "LaunchRequest",
    "planner.jobs.prepared_launch": "PreparedLaunch",
    "planner.sweeps.sweep_request": "SweepRequest",
    "planner.peer_runs.request": "CompareRequest",
    "planner.peer_runs.result": "Comparison",
    "planner.trials.reports": "Listener",
    "planner.tuning.tune_request": "TuneRequest",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
_PARTS = ("jobs", "machines", "plans", "studies", "sweeps", "together", "trainings")
__all__ = sorted([*_MODULES, *_PARTS])  # mypy goes by the imports above


def __getattr__(name: str) -> Any:
    if name in (*_PARTS, "changes", "grids", "names", "reports"):
        return import_module(f"planner.api.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__

"""Python API: everything that the command line does, for notebooks and services.

The commands only parse, call this, and print. Nothing here prints: progress goes to a `Listener`,
failures are exceptions of `planner.errors` and `launch.errors`. `__all__` is the whole surface.
What a name needs is imported when the name is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from launch.errors import LaunchError
    from launch.use_cases import make_workload
    from launch.workload import Workload
    from planner.api import plans
    from planner.api.launching import LaunchResult, PreparedLaunch, launch, prepare_launch
    from planner.api.probing import NodeProbe, ProbeResult, probe
    from planner.api.tuning import NodeTuneResult, TuneResult, tune
    from planner.cancellation import Cancellation
    from planner.errors import CancelledError, PlannerError
    from planner.jobs.hosts import HostAccess, Hosts
    from planner.jobs.making import LaunchRequest
    from planner.trials.reports import Listener
    from planner.tuning.tune_request import TuneRequest

__all__ = [
    "Cancellation",
    "CancelledError",
    "HostAccess",
    "Hosts",
    "LaunchError",
    "LaunchRequest",
    "LaunchResult",
    "Listener",
    "NodeProbe",
    "NodeTuneResult",
    "PlannerError",
    "PreparedLaunch",
    "ProbeResult",
    "TuneRequest",
    "TuneResult",
    "Workload",
    "launch",
    "make_workload",
    "plans",
    "prepare_launch",
    "probe",
    "tune",
]

_MODULES = {
    "Cancellation": "planner.cancellation",
    "CancelledError": "planner.errors",
    "HostAccess": "planner.jobs.hosts",
    "Hosts": "planner.jobs.hosts",
    "LaunchError": "launch.errors",
    "LaunchRequest": "planner.jobs.making",
    "LaunchResult": "planner.api.launching",
    "Listener": "planner.trials.reports",
    "NodeProbe": "planner.api.probing",
    "NodeTuneResult": "planner.api.tuning",
    "PlannerError": "planner.errors",
    "PreparedLaunch": "planner.api.launching",
    "ProbeResult": "planner.api.probing",
    "TuneRequest": "planner.tuning.tune_request",
    "TuneResult": "planner.api.tuning",
    "Workload": "launch.workload",
    "launch": "planner.api.launching",
    "make_workload": "launch.use_cases",
    "prepare_launch": "planner.api.launching",
    "probe": "planner.api.probing",
    "tune": "planner.api.tuning",
}


def __getattr__(name: str) -> Any:
    if name == "plans":
        return import_module("planner.api.plans")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__

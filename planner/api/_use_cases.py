"""Use cases that lie elsewhere than where their plans were found."""

from __future__ import annotations

from launch.errors import LaunchError
from launch.reports import Noted
from launch.workers.fork_server_pool import ForkServerPool
from launch.workload import Workload
from planner.cancellation import Cancellation
from planner.store import Store
from planner.trials.reports import Listener
from planner.trials.runner import TrialRunner
from probes.node import probe


def find_known_place(
    store: Store, workload: Workload, listener: Listener, cancellation: Cancellation
) -> str:
    """Give the place under which the database knows a use case.

    That is its own, unless there are no plans of it, and an object of its name somewhere else
    has some: then the use case is read, in a process of its own, to see whether it is the same.

    Args:
        store: Where the plans are.
        workload: The use case, with its data.
        listener: Receives a line where it is read.
        cancellation: Ends that.
    """
    own = workload.use_case
    namesakes = store.find_namesakes(own)
    if not namesakes or store.plans(own):
        return own
    listener(Noted(message=f"reading {own}: its plans may have been found in another folder"))
    with ForkServerPool() as servers:
        runner = TrialRunner(workload, probe(quick=True), servers, cancellation)
        try:
            return namesakes.get(runner.describe().digest, own)
        except LaunchError:  # said by the command that finds a plan, which comes next
            return own

"""What can the network between the hosts of a launch do? As it was measured, or is measured now."""

from __future__ import annotations

from launch.hosts.checked import HostsChecked
from planner.commands.on_hosts import check_world
from planner.links import MeasuredLinks
from planner.output import Output
from planner.reach import Reach
from planner.report.together_lines import TogetherLines
from planner.software import current_software
from planner.together.campaign import Campaign
from planner.together.gathering import Gathering, LazyStore, NodeState
from planner.together.task import Purpose


def measure_between(
    checked: HostsChecked, reach: Reach, db: str, gradient_bytes: int, out: Output
) -> MeasuredLinks | None:
    """Measure the network between hosts that were never measured together, and keep it.

    Without it nobody knows whether a host is worth its place in the job.

    Args:
        checked: What the checks of the hosts showed.
        reach: How they are reached.
        db: Where it is kept.
        gradient_bytes: What a node exchanges in a step.
        out: Where to say it.

    Returns:
        What was measured; ``None`` where a host was lost meanwhile.

    Raises:
        HostUnreachableError: MPI does not join the hosts.
    """
    check_world(checked, reach, out)
    names = [host.name for host in checked.ranked]
    doing = f"measuring the network between {len(names)} hosts"
    out.note(f"{doing}, as it was not measured with all of them")
    with LazyStore(db) as store, TogetherLines(out, names, doing) as lines:
        nodes = {name: NodeState(host=name) for name in names}
        gathering = Gathering(store, current_software(), lines, nodes=nodes)
        sizes = (gradient_bytes,)
        Campaign(Purpose.LINKS, checked, reach, gathering, message_bytes=sizes).run()
    return gathering.links if all(node.failure is None for node in nodes.values()) else None

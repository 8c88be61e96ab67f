"""Fork servers, one for each environment that plans start in, started when they are needed."""

from __future__ import annotations

from launch.plan import Plan
from launch.process_environment.allocators import is_preloaded
from launch.process_environment.openmp import WAIT_POLICIES, wait_policy
from launch.workers.fork_server import ForkServer

_DEFAULT = ("default", WAIT_POLICIES[0])


class ForkServerPool:
    """The fork servers of one owner.

    Use it in a ``with`` block; leaving it ends every server with its workers. The one with nothing
    set is started at once, as every owner needs it.
    """

    def __init__(self) -> None:
        self._servers: dict[tuple[str, str], ForkServer] = {_DEFAULT: ForkServer(*_DEFAULT)}

    def __enter__(self) -> ForkServerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, plan: Plan | None = None) -> ForkServer:
        """Return the server whose workers can run a plan; a new one where it has ended.

        Args:
            plan: ``None`` for tasks without one.

        Raises:
            InvalidPlanError: This node does not have its allocator, or it waits in no known way.
        """
        key = _key(plan)
        known = self._servers.get(key)
        if known is not None and known.is_gone():
            known.close()  # its side is closed, ours is not
            known = None
        if known is None:
            known = self._servers[key] = ForkServer(*key)
        return known

    def end(self, plan: Plan) -> None:
        """End a server that failed, with its workers; `get` then starts a new one."""
        if known := self._servers.get(_key(plan)):
            known.close()

    def close(self) -> None:
        """End every server and every worker."""
        for server in self._servers.values():
            server.close()


def _key(plan: Plan | None) -> tuple[str, str]:
    """Give what a process must be started with: allocator and way of waiting."""
    if plan is None:
        return _DEFAULT
    allocator = plan.allocator if is_preloaded(plan.allocator) else _DEFAULT[0]
    return allocator, wait_policy(plan)

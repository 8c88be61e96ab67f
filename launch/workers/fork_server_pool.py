"""Fork servers, one for each allocator, started when they are needed."""

from __future__ import annotations

from launch.system.allocators import is_preloaded
from launch.workers.fork_server import ForkServer

_DEFAULT = "default"


class ForkServerPool:
    """The fork servers of one owner.

    Use it in a ``with`` block; leaving it ends every server with its workers. The one for the C
    library's allocator is started at once, as every owner needs it.
    """

    def __init__(self) -> None:
        self._servers: dict[str, ForkServer] = {_DEFAULT: ForkServer()}

    def __enter__(self) -> ForkServerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def get(self, allocator: str = _DEFAULT) -> ForkServer:
        """Return the server whose workers have an allocator; a new one where it has ended.

        Raises:
            InvalidPlanError: This node does not have that allocator.
        """
        key = _key(allocator)
        known = self._servers.get(key)
        if known is not None and known.is_gone():
            known.close()  # its side is closed, ours is not
            known = None
        if known is None:
            known = self._servers[key] = ForkServer(key)
        return known

    def end(self, allocator: str) -> None:
        """End a server that failed, with its workers; `get` then starts a new one."""
        if known := self._servers.get(_key(allocator)):
            known.close()

    def close(self) -> None:
        """End every server and every worker."""
        for server in self._servers.values():
            server.close()


def _key(allocator: str) -> str:
    return allocator if is_preloaded(allocator) else _DEFAULT

"""Server: listens, tells where, and ends within a second, open event streams included."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn

from planner.errors import OutputError, UsageError, reason_of
from planner.service.app import Service, make_service
from planner.service.connection import BoundedConnection, connection_class
from planner.service.guard.addresses import Addresses, is_loopback
from planner.service.guard.credentials import Credentials, read_token_file
from planner.service.requests.settings import Bounds, ServiceSettings

_BACKLOG = 256
_GRACE_S = 0.4
"""For answers that are under way when the server ends."""


def serve(settings: ServiceSettings, *, on_address: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        settings: What, where and to whom.
        on_address: Told the address to open, once it can be: with a token for one use, and again
            with another one when that was used. With a token file the address has none.

    Raises:
        UsageError: It cannot listen there, or the token file holds none.
        RefusedError: Others may read the token file.
    """
    if settings.token_file is None and not is_loopback(settings.host):
        raise UsageError(
            f"--host {settings.host} and no --token-file: name one, because others can reach that "
            "address"
        )
    addresses = Addresses.of(settings.host, settings.public_urls)
    token = None if settings.token_file is None else read_token_file(settings.token_file)
    credentials, bounds = Credentials(token), Bounds()
    with _listen(settings) as listener:
        port = listener.getsockname()[1]
        origin = _origin(settings, addresses, port)

        def tell() -> None:
            once = "" if token is not None else f"?token={credentials.renew_once()}"
            on_address(f"{origin}/{once}")

        def tell_again() -> None:
            # Whoever read it may be gone: rich wants to exit then. Or its disk is full.
            with contextlib.suppress(OSError, OutputError, SystemExit):
                tell()

        service = make_service(
            settings,
            addresses=addresses,
            credentials=credentials,
            cookie=f"ddlplan-{port}",
            bounds=bounds,
            on_used=tell_again if token is None else lambda: None,
        )
        config = uvicorn.Config(
            service.app,
            http=connection_class(bounds),
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            backlog=_BACKLOG,
            h11_max_incomplete_event_size=2 * bounds.header_bytes,
        )
        asyncio.run(_OrderlyServer(config, service, tell).serve(sockets=[listener]))


class _OrderlyServer(uvicorn.Server):
    """A server whose streams end with it."""

    def __init__(
        self, config: uvicorn.Config, service: Service, on_start: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._on_start = on_start

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_start()

    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:
            for connection in list(self.server_state.connections):
                if isinstance(connection, BoundedConnection):
                    connection.end_if_slow()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        self._service.streams.end()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if self.server_state.tasks:
            await asyncio.wait(self.server_state.tasks, timeout=_GRACE_S)
        for task in self.server_state.tasks:
            task.cancel()
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        await asyncio.sleep(0)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End in order on a signal; it has done what it was asked for, and is not raised again."""
        loop = asyncio.get_running_loop()
        numbers = [
            number
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is not signal.SIG_IGN or number == signal.SIGINT
        ]
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.should_exit = True


@contextlib.contextmanager
def _listen(settings: ServiceSettings) -> Iterator[socket.socket]:
    try:
        family, _, _, _, where = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        # asyncio sets TCP_NODELAY only where the protocol is named. Without it, the second packet
        # of an answer waits for the reader's delayed acknowledgement: 40 ms a page.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--host {settings.host}: {reason_of(error)}: name another") from error
    with listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(where)
            listener.listen(_BACKLOG)
        except OSError as error:
            raise UsageError(
                f"--host {settings.host} --port {settings.port}: {reason_of(error)}: choose others"
            ) from error
        listener.setblocking(False)
        yield listener


def _origin(settings: ServiceSettings, addresses: Addresses, port: int) -> str:
    if addresses.public_origins:
        return sorted(addresses.public_origins)[0]
    host = settings.host
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared with, not bound to
        host = socket.gethostname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

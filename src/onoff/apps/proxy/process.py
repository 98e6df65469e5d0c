"""Running the proxy: Granian inside the event loop of the client, one process, so that nothing outlives a kill."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from ipaddress import ip_address

from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server

from onoff.apps.proxy.app import Application
from onoff.apps.proxy.line import Line
from onoff.client.client import Client
from onoff.server.listening import BACKLOG, GivenSocket, reserved

HEADER_MILLISECONDS, HEADER_BYTES = 10_000, 64 * 1024


class _Server(GivenSocket, Server):
    """Granian on our socket, in this process; it closes the copy that it is given."""

    def _init_shared_socket(self) -> None:
        super()._init_shared_socket()
        self._sso.detach()


async def run(
    client: Client,
    urls: Mapping[str, str] | None,
    host: str,
    port: int,
    *,
    metrics: bool,
    opened: Callable[[Line], None],
    ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP. `opened` is called with the line, and `ready` with the address."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with reserved(host, port) as listening:
        address, taken = listening.getsockname()[:2]
        async with client:
            line = Line(client)
            opened(line)
            server = _Server(
                Application(line, urls, metrics),
                address=address,
                port=taken,
                interface=Interfaces.ASGI,
                http=HTTPModes.http1,
                http1_settings=HTTP1Settings(header_read_timeout=HEADER_MILLISECONDS, max_buffer_size=HEADER_BYTES),
                websockets=False,
                backlog=BACKLOG,
                log_enabled=False,
            )
            server.listening = listening
            serving = asyncio.create_task(server.serve())
            try:
                async with line:  # it ends first: Granian waits for those who wait in line
                    there = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
                    while not await _answers(there, taken):
                        await asyncio.sleep(0.02)
                    ready(f"http://{f'[{there}]' if ':' in there else there}:{taken}")
                    await stop.wait()
            finally:
                server.stop()  # type: ignore[no-untyped-call]
                await serving


async def _answers(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

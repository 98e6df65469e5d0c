"""Running the proxy: Granian inside the event loop of the client, one process, so that nothing outlives a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from ipaddress import ip_address

from granian.http import HTTP1Settings

from onoff.apps.proxy.app import Application
from onoff.apps.proxy.line import Line
from onoff.client.client import Client
from onoff.server.embedded import answering, embedded, stopped
from onoff.server.listening import BACKLOG, reserved

HEADERS = HTTP1Settings(header_read_timeout=10_000, max_buffer_size=64 * 1024)  # milliseconds, and bytes


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
    stop = stopped()
    with reserved(host, port) as listening:
        address, taken = listening.getsockname()[:2]
        async with client:
            line = Line(client)
            opened(line)
            server = embedded(Application(line, urls, metrics), listening, http1_settings=HEADERS, backlog=BACKLOG)
            serving = asyncio.create_task(server.serve())
            try:
                async with line:  # it ends first: Granian waits for those who wait in line
                    there = await answering(address, taken)
                    ready(f"http://{f'[{there}]' if ':' in there else there}:{taken}")
                    await stop.wait()
            finally:
                server.stop()  # type: ignore[no-untyped-call]
                await serving


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False

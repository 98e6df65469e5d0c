"""A web server inside our own event loop, in one process: Granian on a socket of ours, for the page and the proxy."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any

from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from onoff.server.listening import GivenSocket


class EmbeddedServer(GivenSocket, Server):
    """Granian on our socket, in this process; it closes the copy that it is given."""

    def _init_shared_socket(self) -> None:
        super()._init_shared_socket()
        self._sso.detach()


def embedded(application: Any, listening: socket.socket, **settings: Any) -> EmbeddedServer:
    """A server of an ASGI application on a socket that listens, with more `settings` of Granian."""
    address, port = listening.getsockname()[:2]
    server = EmbeddedServer(
        application,
        address=address,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        log_enabled=False,
        **settings,
    )
    server.listening = listening
    return server


def stopped() -> asyncio.Event:
    """What is set by SIGINT, by SIGTERM, and by SIGHUP: a terminal that is closed is an end, too."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


async def answering(address: str, port: int) -> str:
    """Wait until connections are taken at an address. Returns it, or the machine's own if it stands for all of them."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)
    while True:
        try:
            _, writer = await asyncio.open_connection(reachable, port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return reachable

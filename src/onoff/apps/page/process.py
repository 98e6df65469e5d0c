"""Running the page: Granian inside our own event loop, so that Ctrl-C ends streams, client and server in order."""

from __future__ import annotations

import asyncio
import signal
import webbrowser
from collections.abc import Callable

from granian.constants import HTTPModes, Interfaces
from granian.server.embed import Server

from onoff.apps.page.app import create_app
from onoff.apps.page.showing import Page
from onoff.model.chain import Chain
from onoff.server.listening import GivenSocket, reserved

HOST = "127.0.0.1"  # and nothing else: the page shows what nobody else may see


class _Server(GivenSocket, Server):
    """Granian on our socket, in this process; it closes the copy that it is given."""

    def _init_shared_socket(self) -> None:
        super()._init_shared_socket()
        self._sso.detach()


def run(chain: Chain, title: str, port: int, show: bool, ready: Callable[[str], None]) -> None:
    """Serve the page until SIGINT, SIGTERM or SIGHUP; `ready` is told its address, and a browser opened if `show`."""
    asyncio.run(_run(chain, title, port, show, ready))


async def _run(chain: Chain, title: str, port: int, show: bool, ready: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # a terminal that is closed is an end, too
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    page = Page()
    with reserved(HOST, port) as listening:
        address, taken = listening.getsockname()
        server = _Server(
            create_app(page, taken),
            address=address,
            port=taken,
            interface=Interfaces.ASGI,
            http=HTTPModes.http1,
            websockets=False,
            log_enabled=False,
        )
        server.listening = listening
        loading, stopping = asyncio.create_task(page.load(chain, title)), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                return
            await loading
            serving = asyncio.create_task(server.serve())
            while not await _answers(address, taken):
                await asyncio.sleep(0.02)
            url = f"http://{address}:{taken}/"
            ready(url)
            if show:
                await asyncio.to_thread(webbrowser.open, url)
            await stopping
        finally:
            for task in (loading, stopping):
                task.cancel()
            await asyncio.gather(loading, stopping, return_exceptions=True)
            await page.close()  # the streams must end first: Granian waits for them
        server.stop()  # type: ignore[no-untyped-call]
        await serving


async def _answers(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True

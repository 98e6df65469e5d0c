"""Running the page: Granian inside our own event loop, so that Ctrl-C ends streams, client and server in order."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Callable

from onoff.apps.page.app import create_app
from onoff.apps.page.showing import Page
from onoff.model.chain import Chain
from onoff.server.embedded import answering, embedded, stopped
from onoff.server.listening import reserved

HOST = "127.0.0.1"  # and nothing else: the page shows what nobody else may see


def run(chain: Chain, title: str, port: int, show: bool, ready: Callable[[str], None]) -> None:
    """Serve the page until SIGINT, SIGTERM or SIGHUP; `ready` is told its address, and a browser opened if `show`."""
    asyncio.run(_run(chain, title, port, show, ready))


async def _run(chain: Chain, title: str, port: int, show: bool, ready: Callable[[str], None]) -> None:
    stop, page = stopped(), Page()
    with reserved(HOST, port) as listening:
        address, taken = listening.getsockname()
        server = embedded(create_app(page, taken), listening)
        loading, stopping = asyncio.create_task(page.load(chain, title)), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                return
            await loading
            serving = asyncio.create_task(server.serve())
            await answering(address, taken)
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

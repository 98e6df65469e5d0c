"""Running the page: uvicorn inside our own event loop, so that Ctrl-C ends streams, client and server in order."""

from __future__ import annotations

import asyncio
import webbrowser
from collections.abc import Callable

from onoff.apps.page.app import create_app
from onoff.apps.page.state import Page
from onoff.model.chain import Chain
from onoff.server.run import reserved, served, stop_event, url_of

HOST = "127.0.0.1"  # and nothing else: the page shows what nobody else may see


def run(chain: Chain, title: str, port: int, show: bool, ready: Callable[[str], None]) -> None:
    """Serve the page until SIGINT, SIGTERM or SIGHUP; `ready` is told its address, and a browser opened if `show`."""
    asyncio.run(_run(chain, title, port, show, ready))


async def _run(chain: Chain, title: str, port: int, show: bool, ready: Callable[[str], None]) -> None:
    stop, page = stop_event(), Page(chain, title)
    with reserved(HOST, port) as listening:
        url = f"{url_of(listening)}/"
        loading, stopping = asyncio.create_task(page.start()), asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                return
            await loading
            async with served(create_app(page), listening):
                ready(url)
                if show:
                    await asyncio.to_thread(webbrowser.open, url)
                await stopping
                await page.close()  # the streams must end first: uvicorn waits for them
        finally:
            for task in (loading, stopping):
                task.cancel()
            await asyncio.gather(loading, stopping, return_exceptions=True)
            await page.close()

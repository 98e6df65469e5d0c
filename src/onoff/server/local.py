"""A server in a thread of this process, on a free loopback port, with one round published.

The demonstration and the page talk to it over HTTP as they would to any server. It ends with the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from onoff.server.app import Application, Settings
from onoff.server.run import reserved, served, url_of
from onoff.server.store import open_store
from onoff.wire import Catalogue

HOST = "127.0.0.1"


class LocalServer:
    """Use as `with LocalServer(...) as server`. Its files are in `directory`."""

    def __init__(self, directory: Path, messages: Mapping[str, bytes], length: int) -> None:
        self.catalogue, self.transcript = Catalogue(tuple(messages), length), directory / "transcript"
        self._messages, self._stack, self.url = messages, ExitStack(), ""
        self._settings = Settings(str(directory / "messages.db"), self.catalogue, transcript=self.transcript)

    def __enter__(self) -> LocalServer:
        """Return when it answers and the messages are published."""
        listening = self._stack.enter_context(reserved(HOST, 0))
        self.url = url_of(listening)
        open_store(self._settings.store, self.catalogue).close()
        self._app, ready = Application(self._settings), threading.Event()

        async def serve() -> None:
            stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
            self._stack.callback(self._loop.call_soon_threadsafe, stop.set)
            async with served(self._app, listening):
                ready.set()
                await stop.wait()

        thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
        self._stack.callback(thread.join)
        thread.start()
        ready.wait()
        self.publish(self._messages)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End it, if it runs, and wait for its end."""
        self._stack.close()

    def publish(self, messages: Mapping[str, bytes]) -> None:
        """Publish a round of these messages, from any thread but the server's own."""
        round = {self.catalogue.index[name]: message for name, message in messages.items()}
        asyncio.run_coroutine_threadsafe(self._app.publish(round), self._loop).result()

"""Ports for servers that tests start: below those that the system gives out, so that none is taken meanwhile."""

from __future__ import annotations

import itertools
import os
import random
import socket

BLOCK = 2000
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
_places = itertools.count(random.SystemRandom().randrange(BLOCK))  # another run may be on this machine too


def free_port() -> int:
    """One that this process has not been given before; each worker of a run has its own block."""
    for place in itertools.islice(_places, BLOCK):
        port = 12_000 + BLOCK * _worker + place % BLOCK
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise AssertionError("no port is free")

"""The socket that the server listens on: bound once, by the parent process, and handed to Granian's workers.

Granian's own way is a socket for each worker that shares its port (SO_REUSEPORT). Another server started on the port
by mistake would share it too, and nothing could be said about connections whose other end does not read.
"""

from __future__ import annotations

import errno
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from granian._granian import SocketHolder

from onoff.errors import OnoffError

# A server that was killed leaves its port within a moment; who starts it again must not fail for that.
_PORT_PATIENCE = 3.0

# What was sent must be taken by the other side within this many milliseconds, or the system ends the connection: one
# that does not read would keep its place for ever. Also ends connections whose other side is gone.
UNREAD_MILLISECONDS = 30_000

# What the system takes of an answer ahead of sending it. Without this it is megabytes for each connection.
UNSENT_BYTES = 128 * 1024
_TCP_NOTSENT_LOWAT = 25  # Linux's number; Python 3.11 has no name for it

BACKLOG = 4096  # connections that the system keeps waiting; it may have a smaller limit of its own (somaxconn)
CONNECTIONS = 4096  # that each worker serves at a time
_OTHER_FILES = 128  # that a worker needs beside its connections
_LEAST = 64


class GivenSocket:
    """Makes a server of Granian use the socket `listening` in place of its own. The two methods are not part of
    Granian's public interface; tests check that they do what they should."""

    listening: socket.socket
    _sfd: Any
    _shd: Any
    _sso: Any
    _ssp: Any

    def _init_shared_socket(self) -> None:
        self._sso = self.listening.dup()
        self._sso.set_inheritable(True)  # by the worker processes
        self._sfd, self._ssp = self._sso.fileno(), None
        self._shd = SocketHolder(self._sfd, False, BACKLOG)  # type: ignore[call-arg]

    def _drop_shared_socket(self) -> None:
        """Close our copy. The caller of `reserved` closes the socket itself."""
        self._sso.close()


@contextmanager
def reserved(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens on the address and the port (0: any). Nobody else can have them while it is open."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except OSError as error:
        raise OnoffError(f"{host}: not an address to listen on ({error.strerror})") from error
    except UnicodeError as error:
        raise OnoffError(f"{host!r}: not an address to listen on") from error
    with _listening(family, place) as found:
        yield found


def _listening(family: int, place: Any) -> socket.socket:
    deadline = time.monotonic() + _PORT_PATIENCE
    while True:
        made = socket.socket(family)
        try:
            # For the connections of a server that has ended, which linger.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if sys.platform == "linux":  # connections have it from here
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
                made.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
            made.bind(place)
            # Two sockets may be bound to one port as long as neither listens: to listen settles who has it.
            made.listen(BACKLOG)
            return made
        except OSError as error:
            made.close()
            if error.errno != errno.EADDRINUSE or time.monotonic() > deadline:
                raise OnoffError(f"{place[0]} port {place[1]}: {error.strerror}; name another --port") from error
            time.sleep(0.1)


def connection_limit() -> int:
    """How many connections a worker may serve: fewer than the files it may open, as far as the system lets us.

    Beyond that new connections wait in the system's queue. A worker that runs out of files cannot accept any, and
    Granian tries again at once, for ever, without a word.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    found = CONNECTIONS if soft == resource.RLIM_INFINITY else min(CONNECTIONS, soft - _OTHER_FILES)
    if found < _LEAST:
        raise OnoffError(
            f"this process may open {soft} files only; a server needs {_LEAST + _OTHER_FILES} or more: ulimit -n"
        )
    return found

"""What a path asks for: `/NAME`, or `/HOST/PATH?QUERY` of the original URL where only one source has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from urllib.parse import quote, unquote_to_bytes

import httpx

OURS = "onoff/"  # paths that begin so are the proxy's own


class Naming:
    """The sources of a proxy, by path. A name comes before a URL, and what two URLs share names nothing."""

    def __init__(self, names: Sequence[str], urls: Mapping[str, str] | None = None) -> None:
        self._names = frozenset(name for name in names if name and not name.startswith(OURS))
        keys = {name: _key(url) for name, url in (urls or {}).items()}
        often = Counter(keys.values())
        self._places = {key: name for name, key in keys.items() if often[key] == 1}

    def source(self, raw_path: bytes, query: bytes = b"") -> str | None:
        """The source that a path with this query asks for, if there is one."""
        path = raw_path.removeprefix(b"/")
        try:
            name = unquote_to_bytes(path).decode()
            place = path.decode("ascii") + (f"?{query.decode('ascii')}" if query else "")
        except UnicodeDecodeError:
            return None
        if not query and name in self._names:
            return name
        host, slash, rest = place.partition("/")
        return self._places.get(host.lower() + slash + rest)

    def path(self, name: str) -> str | None:
        """The path of a source, for links. None if its name is one that no path can have."""
        plain = {".", "..", ""}.isdisjoint(name.split("/"))  # programs tidy such paths up before they ask
        return f"/{quote(name, safe='')}" if name in self._names and plain else None


def _key(url: str) -> str:
    """Host, port unless the scheme implies it, path and query of a URL, as they are sent."""
    parts = httpx.URL(url)
    return (parts.netloc + parts.raw_path).decode("ascii")

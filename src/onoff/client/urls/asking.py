"""Every URL of a list asked for once, at set-up, all alike: one after the other, sorted by name, redirects followed.

Nothing is wanted yet, so nothing can be told but the list itself, which is public. What servers send is bounded: bytes,
seconds and redirects. A redirect must not lead from https to http, nor from elsewhere into the reader's own network.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urldefrag, urljoin

import httpx

from onoff.client.transport.address import checked_url, masked, origin_of, request_of
from onoff.client.transport.connection import HEADERS, open_connections, within
from onoff.client.transport.web import BODY_LIMIT
from onoff.client.urls import FoundUrls
from onoff.client.urls.lists import Entry
from onoff.errors import CatalogueError, Unavailable
from onoff.foreign import plain
from onoff.types import Bar

MOST_REDIRECTS = 5
SECONDS = 60.0  # for one URL and all its redirects
REDIRECTS = (301, 302, 303, 307, 308)
LOCAL = (".localhost", ".local", ".internal", ".lan", ".home", ".home.arpa")
TRANSLATED = ipaddress.ip_network("64:ff9b::/96")  # addresses of the old kind, seen from a network of the new one


@dataclass(frozen=True)
class _Reply:
    status: int
    location: str | None


async def asked(entries: Sequence[Entry], timeout: float, bar: Bar) -> FoundUrls:
    """The final URL of every entry. All are asked for before an error names those that do not answer."""
    urls: dict[str, str] = {}
    problems: list[str] = []
    async with open_connections([origin_of(entry.url) for entry in entries], timeout, secure=True) as http:
        with bar(len(entries)) as advance:
            for entry in entries:
                try:
                    async with within(SECONDS):
                        urls[entry.name] = await _final(http, entry.url)
                except (CatalogueError, Unavailable) as error:
                    problems.append(f"{entry.place}: {error}")
                advance()
    if problems:
        many = f"{len(problems)} of {len(entries)} URLs cannot be used, the first of them {problems[0]}"
        raise CatalogueError(problems[0] if len(problems) == 1 else many, problems=tuple(problems))
    _check_different(entries, urls)
    redirected = {entry.name: entry.url for entry in entries if urls[entry.name] != entry.url}
    return FoundUrls(urls, redirected, len({origin_of(url) for url in urls.values()}))


async def _final(http: httpx.AsyncClient, url: str) -> str:
    """The URL at the end of all redirects. Raises `CatalogueError` unless it answers with 200."""
    first, at = url, url
    for _ in range(MOST_REDIRECTS + 1):
        reply = await _reply(http, at)
        if reply.status == 200:
            return at
        if reply.status not in REDIRECTS or reply.location is None:
            raise CatalogueError(f"{masked(at)} answers with {reply.status}: correct the URL, or leave it out")
        at = target(first, at, reply.location)
    raise CatalogueError(f"{masked(first)} redirects more than {MOST_REDIRECTS} times: give the URL where it ends")


async def _reply(http: httpx.AsyncClient, url: str) -> _Reply:
    """What a URL answers. The body is read to its end, or to the limit."""
    size = 0
    try:
        async with http.stream("GET", url, headers=HEADERS) as response:
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > BODY_LIMIT:
                    raise CatalogueError(f"{masked(url)} is longer than {BODY_LIMIT} bytes: leave it out")
            return _Reply(response.status_code, response.extensions.get("location"))
    except httpx.HTTPError as error:
        words = plain(str(error)) or type(error).__name__
        raise CatalogueError(f"{masked(url)} does not answer ({words}): correct the URL, or leave it out") from None


def target(first: str, at: str, location: str) -> str:
    """Where a redirect leads, without a part after #. Raises `CatalogueError` if it may not lead there."""
    said = f"{masked(at)} redirects to {masked(location)}"
    try:
        url = urldefrag(urljoin(at, location)).url
        checked_url(url)
    except (CatalogueError, ValueError):
        raise CatalogueError(f"{said}, which is not a URL that can be asked for: leave it out") from None
    if at.lower().startswith("https:") and not url.lower().startswith("https:"):
        raise CatalogueError(f"{said}, which everybody on the way can read: leave it out")
    if _is_near(url) and not _is_near(first):
        raise CatalogueError(f"{said}, which is in your own network: leave it out")
    return url


def _is_near(url: str) -> bool:
    """Whether the host is called local, or is an address that is not of the public internet.

    A host whose last label begins with a digit is an address in one of its short forms (127.1, 0x7f.1).
    """
    host = httpx.URL(url).host.rstrip(".").lower()
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        last = host.rpartition(".")[2]
        return last[:1].isdigit() or not last or "." not in host or host.endswith(LOCAL)
    inside = [address]
    if isinstance(address, ipaddress.IPv6Address):  # an address of the old kind may be within
        inside += [part for part in (address.ipv4_mapped, address.sixtofour) if part is not None]
        if address in TRANSLATED:
            inside.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return not all(part.is_global for part in inside)


def _check_different(entries: Sequence[Entry], urls: dict[str, str]) -> None:
    """Raise `CatalogueError` if two redirects lead to the same place."""
    places: dict[str, Entry] = {}
    for entry in entries:
        other = places.setdefault(request_of(urls[entry.name]), entry)
        if other is not entry:
            both = f"{other.place} and {entry.place}"
            raise CatalogueError(f"{both} lead to the same URL, {masked(urls[entry.name])}: leave one of them out")

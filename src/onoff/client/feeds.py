"""The URLs that a client reads from, found once in a list of feeds: `list_feeds` reads it, `find_urls` asks for them.

A list is OPML, as feed readers export it, or one URL in a line. What it says is foreign, and bounded. OPML is read by
expat. It has no need of a document type, and without one there are no entities to expand or to fetch: a file that
declares one is refused at once.

`find_urls` asks for every URL once, all alike: one after the other, sorted by name, redirects followed. Nothing is
wanted yet, so servers learn only the list, which is public. Bytes, seconds and redirects are bounded. A redirect must
not lead from https to http, nor from elsewhere into the reader's own network.

The result has neither dates nor the order of the list, which may tell what its owner likes best: sources are sorted
by their names.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from itertools import chain, count
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urldefrag, urljoin
from xml.parsers import expat

import httpx

from onoff.client.transports.http import (
    BrokenAnswer,
    Connections,
    MixedAnswers,
    check_url,
    mask,
    request_of,
    within,
)
from onoff.client.transports.web import BODY_LIMIT
from onoff.errors import CatalogueError, Unavailable
from onoff.files import explain_reading
from onoff.text import plain
from onoff.types import Bar, quiet

MOST_REDIRECTS = 5
SECONDS = 60.0  # for one URL and all its redirects
SILENCE = 10.0  # seconds that a server may be silent
REDIRECTS = (301, 302, 303, 307, 308)
LOCAL = (".localhost", ".local", ".internal", ".lan", ".home", ".home.arpa")
MOST_BYTES = 8 * 2**20
LONGEST_NAME = 60
NONE: Mapping[str, Source] = MappingProxyType({})


@dataclass(frozen=True)
class Entry:
    """One feed: the title that the list gives it, its URL, and where in the list it stands, for errors."""

    title: str
    url: str
    place: str

    @property
    def name(self) -> str:
        return plain_name(self.title, self.url)


@dataclass(frozen=True)
class Source:
    """A source as its owner knows it. Sources of an onoff server have no URL."""

    title: str
    url: str | None = None


@dataclass(frozen=True)
class FoundUrls:
    """What was found at the URLs of a list: sources by name, sorted.

    `redirected` has the URLs that redirected sources have in the list, `left_out` which URLs are of no use, and why.
    """

    sources: Mapping[str, Source]
    redirected: Mapping[str, str]
    left_out: tuple[str, ...]


async def find_urls(entries: Sequence[Entry], known: Mapping[str, Source] = NONE, bar: Bar = quiet) -> FoundUrls:
    """The sources of a list. None has the name or the URL of a `known` one.

    Every URL is asked for once, all alike, sorted by name. Redirects are followed here, because a client follows none.
    A URL is left out if it cannot be asked for, does not answer with 200, or leads where another one leads.
    """
    sources: dict[str, Source] = {}
    redirected, problems = {}, []
    places = {request_of(source.url): name for name, source in known.items() if source.url is not None}
    with bar(len(entries)) as advance:
        for entry in sorted(entries, key=lambda entry: (entry.name, entry.url)):
            try:
                url = await _last(entry.url, places)
            except (CatalogueError, Unavailable) as error:
                problems.append(f"{entry.place}: {error}")
            else:
                places[request_of(url)] = entry.place
                free = next(free for free in _number(entry.name) if free not in sources and free not in known)
                sources[free] = Source(entry.title or free, url)
                if url != entry.url:
                    redirected[free] = entry.url
            advance()
    return FoundUrls(dict(sorted(sources.items())), redirected, tuple(problems))


async def _last(url: str, places: Mapping[str, str]) -> str:
    """Where a URL leads, if none of the `places` is there. Raises `CatalogueError` or `Unavailable`."""
    http = Connections(SILENCE)
    try:
        _check_new(url, places)
        async with within(SECONDS):
            last = await _final(http, url)
        if last != url:
            _check_new(last, places)
        return last
    finally:
        await http.close()


def _check_new(url: str, places: Mapping[str, str]) -> None:
    """Raise `CatalogueError` if a URL cannot be asked for, or if another one leads there."""
    if check_url(url).fragment:
        raise CatalogueError("its URL ends with a part after #, which no server sees: leave that out")
    other = places.get(request_of(url))
    if other is not None:
        raise CatalogueError(f"leads to the same URL as {other}")


def _number(name: str) -> Iterator[str]:
    """Yield the name, then the name with a number behind it."""
    return chain([name], (f"{name}-{number}" for number in count(2)))


async def _final(http: Connections, url: str) -> str:
    """The URL at the end of all redirects. Raises `CatalogueError` unless it answers with 200."""
    at = url
    for _ in range(MOST_REDIRECTS + 1):
        try:
            reply = await http.read("GET", at, BODY_LIMIT)
        except (BrokenAnswer, MixedAnswers, Unavailable) as error:
            raise CatalogueError(f"{mask(at)} does not answer as it should ({error})") from None
        location = reply.headers.get("location")
        if reply.status == 200:
            return at
        if reply.status not in REDIRECTS or location is None:
            raise CatalogueError(f"{mask(at)} answers with {reply.status}")
        at = target(url, at, location)
    raise CatalogueError(f"{mask(url)} redirects more than {MOST_REDIRECTS} times")


def target(first: str, at: str, location: str) -> str:
    """Where a redirect leads, without a part after #. Raises `CatalogueError` if it may not lead there."""
    said = f"{mask(at)} redirects to {mask(location)}"
    try:
        url = urldefrag(urljoin(at, location)).url
        check_url(url)
    except (CatalogueError, ValueError):
        raise CatalogueError(f"{said}, which is not a URL that can be asked for") from None
    if at.lower().startswith("https:") and not url.lower().startswith("https:"):
        raise CatalogueError(f"{said}, which everybody on the way can read")
    if _is_near(url) and not _is_near(first):
        raise CatalogueError(f"{said}, which is in your own network")
    return url


def _is_near(url: str) -> bool:
    """True if the host is called local, or is an address outside the public internet.

    A host whose last label begins with a digit is an address in one of its short forms (127.1, 0x7f.1).
    """
    host = httpx.URL(url).host.rstrip(".").lower()
    try:
        address = ip_address(host)
    except ValueError:
        return host.rpartition(".")[2][:1].isdigit() or "." not in host or host.endswith(LOCAL)
    inside = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return not (inside or address).is_global


def list_feeds(file: str | Path) -> list[Entry]:
    """The feeds of an OPML file or of a plain list of URLs; "-" is stdin. Raises `CatalogueError` if it is neither."""
    label, data = _content(file)
    looks_like_xml = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") or data[:2] in (b"\xff\xfe", b"\xfe\xff")
    return _outlines(data, label) if looks_like_xml else _lines(data, label)


def plain_name(title: str, url: str) -> str:
    """A name that commands, files and paths can hold: letters and digits of the title in small, joined by `-`.

    Without any, the host and the path of the URL serve as the title.
    """
    for text in (title, re.sub(r"^\w+://(www\.)?", "", url)):
        words = re.split(r"[\W_]+", unicodedata.normalize("NFKC", text[:1000]).lower())
        name = "-".join(filter(None, words))[:LONGEST_NAME].strip("-")
        if name:
            return name
    return "source"


def _content(file: str | Path) -> tuple[str, bytes]:
    """What to call it, and its bytes."""
    if str(file) == "-":
        label, data = "stdin", sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        label = str(file)
        with explain_reading(file, CatalogueError), Path(file).open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise CatalogueError(f"{label}: is longer than {MOST_BYTES} bytes, which no list of feeds is")
    return label, data


def _lines(data: bytes, label: str) -> list[Entry]:
    """The feeds of a text. Empty lines and lines with # are passed over."""
    with explain_reading(label, CatalogueError):
        text = data.decode("utf-8-sig")
    lines = [(f"{label}: line {number}", line) for number, line in enumerate(text.splitlines(), 1)]
    return [entry_of(line, place) for place, line in lines if line.strip() and not line.lstrip().startswith("#")]


def entry_of(line: str, place: str) -> Entry:
    """A URL, and after a blank its title, if it has one."""
    url, *title = line.split(maxsplit=1) or [""]
    return _entry(title[0].strip() if title else "", url, place)


def _entry(title: str, url: str, place: str) -> Entry:
    return Entry(title, url, f"{place} ({plain(title, 60)!r})" if title else place)


def _outlines(data: bytes, label: str) -> list[Entry]:
    """The outlines with a URL, as an OPML file has them."""
    found: list[Entry] = []
    parser = expat.ParserCreate()
    first = True

    def begun(tag: str, given: Mapping[str, str]) -> None:
        nonlocal first
        if first and tag.lower() != "opml":
            raise CatalogueError(f"{label}: begins with <{plain(tag, 40)}>; <opml> or a list of URLs is needed")
        first = False
        attributes = {key.lower(): value for key, value in given.items()}
        if tag.lower() == "outline" and attributes.get("xmlurl", "").strip():
            title = attributes.get("title", "").strip() or attributes.get("text", "").strip()
            found.append(_entry(title, attributes["xmlurl"].strip(), f"{label}: line {parser.CurrentLineNumber}"))

    def refused(*_: object) -> None:
        raise CatalogueError(
            f"{label}: line {parser.CurrentLineNumber} declares a document type or an entity: remove it, since no list "
            "of feeds needs one"
        )

    parser.StartElementHandler = begun
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refused
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        words = expat.ErrorString(error.code)
        raise CatalogueError(f"{label}: line {error.lineno} is not XML ({words}): export the list again") from None
    except (LookupError, ValueError) as error:  # an encoding that Python does not know, or of several bytes
        raise CatalogueError(f"{label}: cannot be decoded ({plain(str(error))}): save it as UTF-8") from None
    return found

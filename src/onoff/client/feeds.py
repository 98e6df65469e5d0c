"""The file of URLs that a client reads from, made once from a list of feeds: its front door is `find_urls`.

A list is OPML, as feed readers export it, or one URL in a line. What it says is foreign, and bounded. OPML is read by
expat. It has no need of a document type, and without one there are no entities to expand or to fetch: a file that
declares one is refused at once.

Every URL is asked for once, at set-up, all alike: one after the other, sorted by name, redirects followed. Nothing is
wanted yet, so nothing can be told but the list itself, which is public. What servers send is bounded: bytes, seconds
and redirects. A redirect must not lead from https to http, nor from elsewhere into the reader's own network.

What is written has neither dates nor the order of the list, which may say what its owner likes best: sources are sorted
by their names.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import urldefrag, urljoin
from xml.parsers import expat

import httpx

from onoff.client.transports.http import (
    BrokenAnswer,
    Connections,
    MixedAnswers,
    checked_url,
    masked,
    origin_of,
    request_of,
    within,
)
from onoff.client.transports.web import BODY_LIMIT
from onoff.errors import CatalogueError, Unavailable
from onoff.files import reading
from onoff.text import plain
from onoff.types import Bar, quiet

MOST_REDIRECTS = 5
SECONDS = 60.0  # for one URL and all its redirects
REDIRECTS = (301, 302, 303, 307, 308)
LOCAL = (".localhost", ".local", ".internal", ".lan", ".home", ".home.arpa")
MOST_BYTES = 8 * 2**20
LONGEST_NAME = 60


@dataclass(frozen=True)
class Entry:
    """One feed: its name, its URL, and where in the list it stands, for errors."""

    name: str
    url: str
    place: str


@dataclass(frozen=True)
class FoundUrls:
    """The sources {name: URL}, sorted by name, the URLs that redirected ones had in the list, and how many servers."""

    urls: Mapping[str, str]
    redirected: Mapping[str, str]
    origins: int


async def find_urls(file: str | Path, timeout: float = 10.0, bar: Bar = quiet) -> FoundUrls:
    """The sources of an OPML file or of a plain list of URLs; "-" is stdin.

    Every URL is asked for once, all alike, sorted by name. Redirects are followed here, because a client follows none.
    Raises `CatalogueError` if the list cannot be read, if a name or a URL is there twice, or if a URL does not
    answer with 200. All are asked for before the error names the places in the list of those that do not.
    """
    entries, urls, problems = listed(file), {}, []
    with bar(len(entries)) as advance:
        for entry in entries:
            http = Connections(timeout)
            try:
                async with within(SECONDS):
                    urls[entry.name] = await _final(http, entry.url)
            except (CatalogueError, Unavailable) as error:
                problems.append(f"{entry.place}: {error}")
            finally:
                await http.close()
            advance()
    if problems:
        many = f"{len(problems)} of {len(entries)} URLs cannot be used, the first of them {problems[0]}"
        raise CatalogueError(problems[0] if len(problems) == 1 else many, problems=tuple(problems))
    _check_different(entries, urls)
    redirected = {entry.name: entry.url for entry in entries if urls[entry.name] != entry.url}
    return FoundUrls(urls, redirected, len({origin_of(url) for url in urls.values()}))


async def _final(http: Connections, url: str) -> str:
    """The URL at the end of all redirects. Raises `CatalogueError` unless it answers with 200."""
    at = url
    for _ in range(MOST_REDIRECTS + 1):
        try:
            reply = await http.read("GET", at, BODY_LIMIT)
        except (BrokenAnswer, MixedAnswers, Unavailable) as error:
            words = f"{masked(at)} does not answer as it should ({error})"
            raise CatalogueError(f"{words}: correct the URL, or leave it out") from None
        location = reply.headers.get("location")
        if reply.status == 200:
            return at
        if reply.status not in REDIRECTS or location is None:
            raise CatalogueError(f"{masked(at)} answers with {reply.status}: correct the URL, or leave it out")
        at = target(url, at, location)
    raise CatalogueError(f"{masked(url)} redirects more than {MOST_REDIRECTS} times: give the URL where it ends")


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
        address = ip_address(host)
    except ValueError:
        return host.rpartition(".")[2][:1].isdigit() or "." not in host or host.endswith(LOCAL)
    inside = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return not (inside or address).is_global


def _check_different(entries: Sequence[Entry], urls: dict[str, str]) -> None:
    """Raise `CatalogueError` if two redirects lead to the same place."""
    places: dict[str, Entry] = {}
    for entry in entries:
        other = places.setdefault(request_of(urls[entry.name]), entry)
        if other is not entry:
            both = f"{other.place} and {entry.place}"
            raise CatalogueError(f"{both} lead to the same URL, {masked(urls[entry.name])}: leave one of them out")


def listed(file: str | Path) -> list[Entry]:
    """The feeds of a file ("-": of stdin), sorted by name. Raises `CatalogueError` unless all names and URLs differ."""
    label, data = _content(file)
    looks_like_xml = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") or data[:2] in (b"\xff\xfe", b"\xfe\xff")
    found = _outlines(data, label) if looks_like_xml else _lines(data, label)
    if len(found) < 2:
        raise CatalogueError(f"{label}: {len(found)} URLs are in it; at least 2 sources are needed")
    names: dict[str, Entry] = {}
    urls: dict[str, Entry] = {}
    for entry in found:
        try:
            if checked_url(entry.url).fragment:
                raise CatalogueError("its URL ends with a part after #, which no server sees: leave that out")
        except CatalogueError as error:
            raise CatalogueError(f"{entry.place}: {error}") from None
        other = names.setdefault(entry.name, entry)
        if other is not entry:
            raise CatalogueError(f"{other.place} and {entry.place} are both called {entry.name!r}: rename one of them")
        other = urls.setdefault(request_of(entry.url), entry)
        if other is not entry:
            raise CatalogueError(f"{other.place} and {entry.place} have the same URL: leave one of them out")
    return sorted(found, key=lambda entry: entry.name)


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
        with reading(file, CatalogueError), Path(file).open("rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise CatalogueError(f"{label}: is longer than {MOST_BYTES} bytes, which no list of feeds is")
    return label, data


def _lines(data: bytes, label: str) -> list[Entry]:
    """One URL in a line, and after a blank its name, if it has one. Empty lines and lines with # are passed over."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CatalogueError(f"{label}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        url, *title = line.split(maxsplit=1)
        found.append(_entry(label, number, title[0] if title else "", url))
    return found


def _entry(label: str, line: int, title: str, url: str) -> Entry:
    told = f" ({plain(title, 60)!r})" if title.strip() else ""
    return Entry(plain_name(title, url), url, f"{label}: line {line}{told}")


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
            title = attributes.get("title", "").strip() or attributes.get("text", "")
            found.append(_entry(label, parser.CurrentLineNumber, title, attributes["xmlurl"].strip()))

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

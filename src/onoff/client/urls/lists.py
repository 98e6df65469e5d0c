"""Lists of feeds: OPML, as feed readers export it, or one URL in a line. What they say is foreign, and bounded.

OPML is read by expat. It has no need of a document type, and without one there are no entities to expand or to fetch: a
file that declares one is refused at once.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.parsers import expat

from onoff.client.transport.address import checked_url, request_of
from onoff.errors import CatalogueError
from onoff.files import reading
from onoff.foreign import plain

MOST_BYTES = 8 * 2**20
MOST_SOURCES = 10_000
MOST_DEPTH = 100  # of outlines within outlines
LONGEST_URL = 8192
LONGEST_NAME = 60


@dataclass(frozen=True)
class Entry:
    """One feed: its name, its URL, and where in the list it stands, for errors."""

    name: str
    url: str
    place: str


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
        _check(entry)
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


def _check(entry: Entry) -> None:
    try:
        if len(entry.url) > LONGEST_URL:
            raise CatalogueError(f"its URL has more than {LONGEST_URL} characters")
        checked_url(entry.url)
        if urlsplit(entry.url).fragment:
            raise CatalogueError("its URL ends with a part after #, which no server sees: leave that out")
    except CatalogueError as error:
        raise CatalogueError(f"{entry.place}: {error}") from None


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
        _check_count(found, label)
    return found


def _entry(label: str, line: int, title: str, url: str) -> Entry:
    told = f" ({plain(title, 60)!r})" if title.strip() else ""
    return Entry(plain_name(title, url), url, f"{label}: line {line}{told}")


def _check_count(found: Sequence[Entry], label: str) -> None:
    if len(found) > MOST_SOURCES:
        raise CatalogueError(f"{label}: more than {MOST_SOURCES} URLs are in it; make a shorter list")


def _outlines(data: bytes, label: str) -> list[Entry]:
    """The outlines with a URL, as an OPML file has them."""
    found: list[Entry] = []
    parser = expat.ParserCreate()
    depth = 0

    def begun(tag: str, given: Mapping[str, str]) -> None:
        nonlocal depth
        if depth == 0 and tag.lower() != "opml":
            raise CatalogueError(f"{label}: begins with <{plain(tag, 40)}>; <opml> or a list of URLs is needed")
        depth += 1
        if depth > MOST_DEPTH:
            raise CatalogueError(f"{label}: line {parser.CurrentLineNumber}: outlines are more than {MOST_DEPTH} deep")
        attributes = {key.lower(): value for key, value in given.items()}
        if tag.lower() == "outline" and attributes.get("xmlurl", "").strip():
            title = attributes.get("title", "").strip() or attributes.get("text", "")
            found.append(_entry(label, parser.CurrentLineNumber, title, attributes["xmlurl"].strip()))
            _check_count(found, label)

    def ended(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refused(*_: object) -> None:
        raise CatalogueError(
            f"{label}: line {parser.CurrentLineNumber} declares a document type or an entity: remove it, since no list "
            "of feeds needs one"
        )

    parser.StartElementHandler, parser.EndElementHandler = begun, ended
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refused
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        words = expat.ErrorString(error.code)
        raise CatalogueError(f"{label}: line {error.lineno} is not XML ({words}): export the list again") from None
    except (LookupError, ValueError) as error:  # an encoding that Python does not know, or of several bytes
        raise CatalogueError(f"{label}: cannot be decoded ({plain(str(error))}): save it as UTF-8") from None
    return found

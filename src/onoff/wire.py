"""What travels between client and server, as bytes: catalogue, query, answer, publication. No I/O, no science.

    catalogue    canonical JSON {"format","length","names","version"}; its SHA-256 is the catalogue's fingerprint
    query        canonical JSON {"catalogue": fingerprint, "held": [rounds], "sources": [ascending indices],
                 "step": number, "stream": 32 hexadecimal digits}
    answer       one frame for each source of the query, in the order of the query, nothing before, between or after;
                 an unchanged one where the latest round of the source is the one that is held, a whole one elsewhere
    whole        "ONF1" | source (4) | round (8) | length (4) | message, zero-padded to L | SHA-256 of all that
    unchanged    "ONU1" | source (4) | round (8) | tag (16) | the first 16 bytes of the SHA-256 of all that
    publication  JSON {"catalogue": fingerprint, "messages": {name: base64}}, published together as one round

Numbers in frames are unsigned and big-endian. Canonical JSON has sorted keys, no blanks and only ASCII, so that the
same query always has the same bytes. A server takes a query in these bytes only.

A stream is the sequence of queries of one journal, which draws its number at random; the queries of a stream are
numbered by their steps. Round 0 with length 0 means that nothing was published for the source yet.

`held` has, for each source of the query, the round that the client holds, and 0 if it holds none. Rounds are compared
for equality alone: a store that was emptied counts them anew. The tag is the beginning of the SHA-256 at the end of the
whole frame that is not sent. By it a client sees whether the server means the message that it holds.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from reprlib import repr as short
from typing import Any

from onoff.errors import AnswerError, CatalogueError, CatalogueMismatch, WireError

FORMAT, VERSION = "onoff-catalogue", 1
MAX_SOURCES = 10_000
MAX_LENGTH = 16 * 2**20
MAX_NAME = 200
MAX_STEP = 2**53 - 1  # the largest integer that every JSON reader keeps exact
MAX_ROUND = MAX_STEP  # far below what a database keeps: a client can store every round that it lets in
STREAM_DIGITS = 32  # 128 random bits

_HEADER = struct.Struct(">4sIQI")
_MAGIC = b"ONF1"
_DIGEST = hashlib.sha256().digest_size
FRAME_OVERHEAD = _HEADER.size + _DIGEST
_TAG = 16
_UNCHANGED = struct.Struct(f">4sIQ{_TAG}s")
_UNCHANGED_MAGIC = b"ONU1"
UNCHANGED_LENGTH = _UNCHANGED.size + _TAG  # shorter than any whole frame

# The bytes that QueryMessage.encode writes, and nothing else. Numbers have at most as many digits as valid ones.
_NUMBER = rb"(?:0|[1-9][0-9]{0,15})"
_NUMBERS = rb"%b(?:,%b)*" % (_NUMBER, _NUMBER)
_CANONICAL_QUERY = re.compile(
    rb'\{"catalogue":"([0-9a-f]{64})","held":\[(%b)\],"sources":\[(%b)\],"step":(%b),"stream":"([0-9a-f]{%d})"\}'
    % (_NUMBERS, _NUMBERS, _NUMBER, STREAM_DIGITS)
)


@dataclass(frozen=True)
class Catalogue:
    """The sources of a server: their names, in order, and the length L to which every message is padded."""

    names: tuple[str, ...]
    length: int

    def __post_init__(self) -> None:
        if not 2 <= len(self.names) <= MAX_SOURCES:
            raise CatalogueError(f"a catalogue has 2 to {MAX_SOURCES} sources, not {len(self.names)}")
        for name in self.names:
            good = isinstance(name, str) and 1 <= len(name) <= MAX_NAME and name.strip() == name and name.isprintable()
            if not good:
                what = f"1 to {MAX_NAME} characters that can be printed, without blanks around them"
                raise CatalogueError(f"{short(name)} is not a name: {what}")
        if len(self.index) != len(self.names):
            twice = next(name for i, name in enumerate(self.names) if self.index[name] != i)
            raise CatalogueError(f"the name {twice!r} occurs twice; every source needs its own")
        if type(self.length) is not int or not 1 <= self.length <= MAX_LENGTH:
            raise CatalogueError(f"the message length must be 1 to {MAX_LENGTH} bytes, not {short(self.length)}")

    @property
    def n(self) -> int:
        return len(self.names)

    @cached_property
    def index(self) -> Mapping[str, int]:
        """The position of each name."""
        return {name: i for i, name in enumerate(self.names)}

    @cached_property
    def document(self) -> bytes:
        """The catalogue as it is served."""
        return _canonical({"format": FORMAT, "length": self.length, "names": self.names, "version": VERSION})

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of `document`, in hexadecimal."""
        return hashlib.sha256(self.document).hexdigest()

    @property
    def frame_length(self) -> int:
        return self.length + FRAME_OVERHEAD

    @cached_property
    def query_limit(self) -> int:
        """No query is longer than this many bytes: the full set with the largest numbers."""
        everything, held = tuple(range(self.n)), (MAX_ROUND,) * self.n
        return len(QueryMessage(self.fingerprint, "0" * STREAM_DIGITS, MAX_STEP, everything, held).encode())

    @cached_property
    def publication_limit(self) -> int:
        """No publication that `encode_publication` writes is longer than this many bytes."""
        return len(encode_publication(self, dict.fromkeys(self.names, b""))) + self.n * 4 * (-(-self.length // 3))

    @classmethod
    def parse(cls, document: bytes) -> Catalogue:
        """The catalogue in a document; only the canonical one is taken, since its bytes are the fingerprint."""
        data = load_json(document, CatalogueError)
        if not isinstance(data, dict) or (data.get("format"), data.get("version")) != (FORMAT, VERSION):
            raise CatalogueError(f'not a catalogue: "format" must be "{FORMAT}", and "version" {VERSION}')
        names = data.get("names")
        catalogue = cls(tuple(names) if isinstance(names, list) else (), data.get("length", 0))
        if catalogue.document != document:
            raise CatalogueError("the catalogue is not in canonical form", reason="not-canonical")
        return catalogue


@dataclass(frozen=True)
class QueryMessage:
    """A set of sources asked for at one step of a stream, against the catalogue with this fingerprint.

    `held` are the rounds that the client has of them, 0 where it has none; left out, it has none at all.
    """

    catalogue: str
    stream: str
    step: int
    sources: tuple[int, ...]
    held: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.held:
            object.__setattr__(self, "held", (0,) * len(self.sources))

    def encode(self) -> bytes:
        return _canonical(vars(self))


@dataclass(frozen=True)
class Frame:
    """One source's latest message and the round in which it was published; round 0 means none yet.

    A frame that was read has its tag, by which `Unchanged` names it.
    """

    source: int
    round: int
    message: bytes
    tag: bytes = field(default=b"", compare=False, repr=False)

    def encode(self, length: int) -> bytes:
        """The frame's bytes with the message padded to `length`: every frame of a catalogue is equally long."""
        if len(self.message) > length:
            raise ValueError(f"a message of {len(self.message)} bytes does not fit a frame of {length}")
        header = _HEADER.pack(_MAGIC, self.source, self.round, len(self.message))
        content = header + self.message.ljust(length, b"\0")
        return content + hashlib.sha256(content).digest()


@dataclass(frozen=True)
class Unchanged:
    """Says that the latest message of a source is still the one of this round, whose frame has this tag."""

    source: int
    round: int
    tag: bytes

    @classmethod
    def of(cls, frame: bytes) -> Unchanged:
        """What stands for the bytes of a whole frame."""
        _, source, number, _ = _HEADER.unpack_from(frame)
        return cls(source, number, frame[-_DIGEST:][:_TAG])

    def encode(self) -> bytes:
        """The bytes, equally many for every source."""
        content = _UNCHANGED.pack(_UNCHANGED_MAGIC, self.source, self.round, self.tag)
        return content + hashlib.sha256(content).digest()[:_TAG]


def decode_answer(
    catalogue: Catalogue, sources: Sequence[int], body: bytes, held: Sequence[int] = ()
) -> tuple[Frame | Unchanged, ...]:
    """Decode the answer to a query for `sources`, in that order, by a client that holds these rounds of them.

    Every frame is checked before anything is returned or raised: the outcome is a function of the whole answer and of
    the query, never of the one source that somebody wanted. A server may call unchanged what nobody holds: the caller
    compares the tag with what it has.
    """
    whole = catalogue.frame_length
    pieces = list(_pieces(memoryview(body), whole, len(sources)))
    if sum(map(len, pieces)) != len(body) or len(pieces[-1]) not in (whole, UNCHANGED_LENGTH):
        raise AnswerError(
            f"the answer has {len(body)} bytes; {len(sources)} frames of {whole}, or of {UNCHANGED_LENGTH} for what is "
            "unchanged, were asked for",
            reason="wrong-length",
        )
    rounds = held or (0,) * len(sources)
    found = [_decode_frame(*each, catalogue.length) for each in zip(pieces, sources, rounds, strict=True)]
    frames = tuple(frame for frame in found if not isinstance(frame, str))
    if len(frames) < len(found):
        faults = tuple((position, fault) for position, fault in enumerate(found) if isinstance(fault, str))
        shown = ", ".join(f"frame {position}: {fault}" for position, fault in faults[:3])
        raise AnswerError(
            f"{len(faults)} of {len(sources)} frames are broken ({shown})", reason="broken-frame", faults=faults
        )
    return frames


def _pieces(view: memoryview, whole: int, count: int) -> Iterator[memoryview]:
    """Cut an answer into frames. Bytes that do not start with the UNCHANGED marker are treated as a whole frame."""
    begin = 0
    for _ in range(count):
        size = UNCHANGED_LENGTH if view[begin : begin + len(_UNCHANGED_MAGIC)] == _UNCHANGED_MAGIC else whole
        yield view[begin : begin + size]
        begin += size


def _decode_frame(data: memoryview, expected: int, held: int, length: int) -> Frame | Unchanged | str:
    """Decode a frame, or say what is wrong with it."""
    digits = _TAG if len(data) == UNCHANGED_LENGTH else _DIGEST
    content, digest = data[:-digits], data[-digits:]
    if hashlib.sha256(content).digest()[:digits] != digest:
        return "checksum does not match"
    frame: Frame | Unchanged
    if digits == _TAG:
        frame = Unchanged(*_UNCHANGED.unpack(content)[1:])
    else:
        magic, source, number, used = _HEADER.unpack_from(content)
        if magic != _MAGIC:
            return "not a frame of this version"
        padded = content[_HEADER.size :]
        if used > length or padded[used:] != bytes(length - used) or (number == 0 and used):
            return "length and padding do not fit together"
        if number == held != 0:
            return "is whole, though its round is held"
        frame = Frame(source, number, bytes(padded[:used]), bytes(digest[:_TAG]))
    if frame.source != expected:
        return f"is of source {frame.source} instead of {expected}"
    return f"its round is above {MAX_ROUND}" if frame.round > MAX_ROUND else frame


def encode_publication(catalogue: Catalogue, messages: Mapping[str, bytes]) -> bytes:
    """The body that publishes these messages, by name, together as one round."""
    encoded = {name: base64.b64encode(message).decode() for name, message in messages.items()}
    return _canonical({"catalogue": catalogue.fingerprint, "messages": encoded})


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))  # made once: json.dumps would make one each time


def _canonical(data: Mapping[str, object]) -> bytes:
    return _ENCODER.encode(data).encode("ascii")


def load_json(body: bytes, error: type[WireError]) -> Any:
    """Read JSON, or raise `error`. A deep nest or a giant number is broken JSON, too."""
    try:
        return json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as cause:
        raise error(f"not JSON: {cause}"[:200], reason="broken-json") from None


def parse_query(body: bytes, catalogue: Catalogue) -> QueryMessage:
    """The query in `body`, checked against the catalogue. Anything but canonical bytes raises a `WireError`."""
    match = _CANONICAL_QUERY.fullmatch(body)
    if match is None:
        raise WireError(
            'not a query: {"catalogue":"64 hexadecimal digits","held":[rounds],"sources":[indices],"step":number,'
            f'"stream":"{STREAM_DIGITS} hexadecimal digits"}} in this order, without blanks',
            reason="not-canonical",
        )
    held, sources = (list(map(int, numbers.split(b","))) for numbers in (match[2], match[3]))
    step, n = int(match[4]), catalogue.n
    if step > MAX_STEP:
        raise WireError(f'"step" is a number from 0 to {MAX_STEP}', reason="wrong-step")
    _check_catalogue(match[1].decode(), catalogue)
    if sources[-1] >= n or sorted(set(sources)) != sources:
        raise WireError(f'"sources" has ascending numbers from 0 to {n - 1}, each once', reason="wrong-sources")
    if len(held) != len(sources) or max(held) > MAX_ROUND:
        raise WireError(
            f'"held" has a round from 0 to {MAX_ROUND} for each of the {len(sources)} sources', reason="wrong-rounds"
        )
    return QueryMessage(catalogue.fingerprint, match[5].decode(), step, tuple(sources), tuple(held))


def parse_publication(body: bytes, catalogue: Catalogue) -> dict[int, bytes]:
    """The messages in `body`, by index, checked against the catalogue."""
    data = load_json(body, WireError)
    if not isinstance(data, dict) or data.keys() != {"catalogue", "messages"}:
        raise WireError('a publication has exactly "catalogue" and "messages"', reason="wrong-type")
    found, encoded = data["catalogue"], data["messages"]
    if not isinstance(found, str) or not isinstance(encoded, dict) or not encoded:
        raise WireError('"catalogue" is a string, "messages" an object that is not empty', reason="wrong-type")
    _check_catalogue(found, catalogue)
    messages: dict[int, bytes] = {}
    for name, text in encoded.items():
        if name not in catalogue.index:
            raise WireError(f"there is no source {name!r}", reason="wrong-sources")
        try:
            message = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise WireError(f"the message of {name!r} is not base64", reason="wrong-type") from None
        if len(message) > catalogue.length:
            raise WireError(
                f"the message of {name!r} has {len(message)} bytes; at most {catalogue.length} fit",
                reason="message-too-long",
            )
        messages[catalogue.index[name]] = message
    return messages


def _check_catalogue(found: str, catalogue: Catalogue) -> None:
    if found != catalogue.fingerprint:
        raise CatalogueMismatch(
            f"made for catalogue {found[:64]!r}; the one here is {catalogue.fingerprint}",
            expected=catalogue.fingerprint,
            found=found,
        )

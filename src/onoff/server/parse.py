"""What a server receives, read and checked against its catalogue: queries and publications.

`onoff.wire` has the format. A query is taken in its canonical bytes only. Every refusal names its reason.
"""

from __future__ import annotations

import base64
import binascii
import re

from onoff.errors import CatalogueMismatch, PublicationError, QueryError, WireError
from onoff.wire import MAX_ROUND, MAX_STEP, STREAM_DIGITS, Catalogue, Query, load_json


def parse_query(body: bytes, catalogue: Catalogue) -> Query:
    """The query in `body`, checked against the catalogue; anything but its canonical bytes is an error."""
    match = _CANONICAL_QUERY.fullmatch(body)
    if match is None:
        raise _why_not_canonical(body, catalogue)
    found, stream, step = match[1].decode("ascii"), match[5].decode("ascii"), int(match[4])
    held, sources = (list(map(int, numbers.split(b","))) for numbers in (match[2], match[3]))
    _check_step(step)
    _same_catalogue(found, catalogue)
    _check_set(sources, catalogue.n)
    _check_held(held, sources)
    return Query(found, stream, step, tuple(sources), tuple(held))


# What Query.encode writes, and nothing else: no JSON needs to be read for it. Numbers of more digits than any valid
# one are left to the slow way.
_NUMBER = rb"(?:0|[1-9][0-9]{0,15})"
_NUMBERS = rb"%b(?:,%b)*" % (_NUMBER, _NUMBER)
_CANONICAL_QUERY = re.compile(
    rb'\{"catalogue":"([0-9a-f]{64})","held":\[(%b)\],"sources":\[(%b)\],"step":(%b),"stream":"([0-9a-f]{%d})"\}'
    % (_NUMBERS, _NUMBERS, _NUMBER, STREAM_DIGITS)
)


def _why_not_canonical(body: bytes, catalogue: Catalogue) -> WireError:
    """What is wrong with bytes that are not a canonical query. The most basic fault is named first."""
    try:
        data = load_json(body, QueryError)
        if not isinstance(data, dict) or data.keys() != {"catalogue", "held", "sources", "step", "stream"}:
            raise QueryError(
                'a query has exactly "catalogue", "held", "sources", "step" and "stream"', reason="wrong-type"
            )
        found, held, sources, step = data["catalogue"], data["held"], data["sources"], data["step"]
        if not isinstance(found, str) or not _are_numbers(sources) or not _are_numbers(held):
            raise QueryError('"catalogue" is a string, "sources" and "held" are lists of integers', reason="wrong-type")
        _check_step(step)
        _check_stream(data["stream"])
        _same_catalogue(found, catalogue)
        _check_set(sources, catalogue.n)
        _check_held(held, sources)
    except WireError as error:
        return error
    return QueryError("not canonical: sorted keys, no blanks, no escapes", reason="not-canonical")


def _are_numbers(found: object) -> bool:
    return isinstance(found, list) and all(type(number) is int for number in found)


def _check_step(step: object) -> None:
    if type(step) is not int or not 0 <= step <= MAX_STEP:
        raise QueryError(f'"step" is an integer from 0 to {MAX_STEP}', reason="wrong-type")


def _check_stream(stream: object) -> None:
    if not isinstance(stream, str) or re.fullmatch(f"[0-9a-f]{{{STREAM_DIGITS}}}", stream) is None:
        raise QueryError(f'"stream" is a string of {STREAM_DIGITS} lower-case hexadecimal digits', reason="wrong-type")


def _check_set(sources: list[int], n: int) -> None:
    if not sources:
        raise QueryError("the set of sources is empty", reason="empty-set")
    if len(sources) > n:
        raise QueryError(f"{len(sources)} sources asked for, there are {n}", reason="too-many-sources")
    if min(sources) < 0 or max(sources) >= n:
        unknown = next(i for i in sources if not 0 <= i < n)
        raise QueryError(f"there is no source {unknown}: they are numbered 0 to {n - 1}", reason="unknown-source")
    distinct = set(sources)
    if len(distinct) != len(sources):
        raise QueryError("a source is repeated; a set has each once", reason="repeated-source")
    if sorted(sources) != sources:
        raise QueryError("the sources are not in ascending order", reason="unsorted-sources")


def _check_held(held: list[int], sources: list[int]) -> None:
    if len(held) != len(sources) or min(held) < 0 or max(held) > MAX_ROUND:
        raise QueryError(
            f'"held" has a round from 0 to {MAX_ROUND} for each of the {len(sources)} sources', reason="wrong-rounds"
        )


def parse_publication(body: bytes, catalogue: Catalogue) -> dict[int, bytes]:
    """The messages in `body`, by index, checked against the catalogue."""
    data = load_json(body, PublicationError)
    if not isinstance(data, dict) or data.keys() != {"catalogue", "messages"}:
        raise PublicationError('a publication has exactly "catalogue" and "messages"', reason="wrong-type")
    found, encoded = data["catalogue"], data["messages"]
    if not isinstance(found, str) or not isinstance(encoded, dict):
        raise PublicationError('"catalogue" is a string and "messages" an object', reason="wrong-type")
    _same_catalogue(found, catalogue)
    if not encoded:
        raise PublicationError("there is no message to publish", reason="empty-set")
    messages: dict[int, bytes] = {}
    for name, text in encoded.items():
        if name not in catalogue.index:
            raise PublicationError(f"there is no source {name!r}", reason="unknown-source")
        try:
            message = base64.b64decode(text, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise PublicationError(f"the message of {name!r} is not base64", reason="wrong-type") from None
        if len(message) > catalogue.length:
            raise PublicationError(
                f"the message of {name!r} has {len(message)} bytes; at most {catalogue.length} fit",
                reason="message-too-long",
            )
        messages[catalogue.index[name]] = message
    return messages


def _same_catalogue(found: str, catalogue: Catalogue) -> None:
    if found != catalogue.fingerprint:
        raise CatalogueMismatch(
            f"made for catalogue {found[:64]!r}; the one here is {catalogue.fingerprint}",
            expected=catalogue.fingerprint,
            found=found,
        )

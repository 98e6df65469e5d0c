"""Queries and publications as a server receives them, read and checked against its catalogue.

`onoff.wire` has the format. A query is taken in its canonical bytes only. Every refusal names its reason.
"""

from __future__ import annotations

import base64
import binascii
import re

from onoff.errors import CatalogueMismatch, WireError
from onoff.wire import MAX_ROUND, MAX_STEP, STREAM_DIGITS, Catalogue, QueryMessage, load_json

# The bytes that QueryMessage.encode writes, and nothing else. Numbers have at most as many digits as valid ones.
_NUMBER = rb"(?:0|[1-9][0-9]{0,15})"
_NUMBERS = rb"%b(?:,%b)*" % (_NUMBER, _NUMBER)
_CANONICAL_QUERY = re.compile(
    rb'\{"catalogue":"([0-9a-f]{64})","held":\[(%b)\],"sources":\[(%b)\],"step":(%b),"stream":"([0-9a-f]{%d})"\}'
    % (_NUMBERS, _NUMBERS, _NUMBER, STREAM_DIGITS)
)


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

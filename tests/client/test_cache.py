"""What a client holds: a function of queries and answers. All small streams are enumerated, and mistakes are seen."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import log2

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff.client import cache
from onoff.client.cache import Member, cache_size, keep_fitting
from onoff.client.transports import Content
from onoff.client.transports.web import condition, version_of
from onoff.errors import OnoffError
from sampling import in_turn

SETS = [(0, 1), (0, 2), (1, 2), (0, 1, 2)]
ENOUGH, SHORT, NONE = 10**6, 40, 0  # SHORT has room for some of the members only


def entry(source, length, version="v"):
    return Member(source, 0, 200, None, None, version, length)


# The servers: what each sends for a source is a function of what was on the wire so far.


def honest(wire, source, version):
    """Source 1 changes at every step, the others never."""
    latest = f"{source}-{len(wire) if source == 1 else 0}"
    if version == latest:
        return Content(200, b"", unchanged=True)
    return Content(200, b"x" * (10 + 5 * source), version=latest)


def marking(wire, source, version):  # noqa: ARG001
    """Every body has a mark of its own, and some are long."""
    return Content(200, b"x" * (10 + 7 * len(wire) * (source == 2)), version=f"mark {len(wire)} {source}")


def denying(wire, source, version):
    """Says that all is unchanged, whether it is held or not, and has nothing for source 0."""
    if source == 0 and len(wire) % 2:
        return Content(404, b"gone")
    if len(wire) > 1 or version is not None:
        return Content(200, b"", unchanged=True)
    return Content(200, b"x" * 12, version="first")


SERVERS = [honest, marking, denying]


def streamed(sets, wanted, server, limit, ask=None, keep=None):
    """What is on the wire of a client that wants these members of these sets: each set, and what it says is cache."""
    entries, wire = {}, []
    for step, (query, request) in enumerate(zip(sets, wanted, strict=True)):
        versions = cache.versions(entries, query) if ask is None else ask(entries, query, request)
        wire.append((query, versions))
        named = [source for source, version in zip(query, versions, strict=True) if version is not None]
        contents = {source: server(wire, source, version) for source, version in zip(query, versions, strict=True)}
        whole = {
            source: content for source, content in contents.items() if source not in named or not content.unchanged
        }
        with pytest.MonkeyPatch.context() as patch:
            if keep is not None:
                patch.setattr(cache, "keep_fitting", lambda found, *rest, request=request: keep(found, *rest, request))
            entries, _ = cache.store(entries, step, whole, limit, fresh=query[:step])
        assert [source for source in query if source not in entries] == []  # the newest answer is always there
    return tuple(wire)


def told(limit, server, **mistakes):
    """Bits that the wire tells, given the sets, about a uniform choice of what was wanted, on average over all sets."""
    bits, count = 0.0, 0
    for sets in product(SETS, repeat=3):
        seen = Counter(
            streamed(((0, 1, 2), *sets), (0, *wanted), server, limit, **mistakes) for wanted in product(*sets)
        )
        total = seen.total()
        bits -= sum(many / total * log2(many / total) for many in seen.values())
        count += 1
    return bits / count


@pytest.mark.parametrize(("server", "limit"), in_turn(SERVERS, [ENOUGH, SHORT, NONE]))
def test_given_the_sets_the_wire_tells_nothing_about_what_was_wanted(server, limit):
    """All streams of an ON step and three sets of three sources: whatever was wanted, one and the same wire."""
    assert told(limit, server) == 0


def only_the_wanted(entries, query, request):
    every = cache.versions(entries, query)
    return tuple(version if source == request else None for source, version in zip(query, every, strict=True))


def sparing_the_wanted(entries, limit, fresh, request):
    found = list(entries)
    mine = [entry for entry in found if entry.source == request]
    return {entry.source for entry in mine} | keep_fitting((e for e in found if e.source != request), limit - 20, fresh)


def test_validators_for_the_wanted_one_alone_are_seen():
    assert told(ENOUGH, honest, ask=only_the_wanted) > 2


def test_an_eviction_that_spares_the_wanted_one_is_seen():
    assert told(SHORT, marking, keep=sparing_the_wanted) > 0.5


# The limit.


@given(
    st.dictionaries(st.integers(0, 50), st.tuples(st.integers(0, 100), st.booleans()), max_size=20),
    st.integers(0, 500),
    st.sets(st.integers(0, 50)),
)
def test_the_smallest_stay_as_long_as_there_is_room(found, limit, fresh):
    entries = [entry(source, length, "v" if has else None) for source, (length, has) in found.items()]
    stay = keep_fitting(entries, limit, fresh)
    assert stay == keep_fitting(reversed(entries), limit, fresh)
    sizes = {e.source: (e.size, e.source) for e in entries if e.version is not None or e.source in fresh}
    assert stay <= sizes.keys()
    assert sum(sizes[source][0] for source in stay) <= limit
    gone = sorted(sizes[source] for source in sizes.keys() - stay)
    if gone and limit:
        assert all(sizes[source] < gone[0] for source in stay)
        assert sum(sizes[source][0] for source in stay) + gone[0][0] > limit


@pytest.mark.parametrize(
    ("given", "size"), [(0, 0), ("0", 0), ("64MiB", 2**26), (" 5 kb ", 5000), ("7", 7), ("2GiB", 2**31), (12, 12)]
)
def test_the_size_of_a_cache_is_read(given, size):
    assert cache_size(given) == size


@pytest.mark.parametrize("given", ["", "-1", -1, "64 fish", "1.5MiB", "MiB", True, "9" * 30, None])
def test_what_is_not_the_size_of_a_cache_is_refused(given):
    with pytest.raises(OnoffError, match="64MiB"):
        cache_size(given)


# What a web server says of the version of a body.

DATE, LATER = "Sat, 03 Oct 2026 08:00:00 GMT", "Sat, 03 Oct 2026 08:00:01 GMT"


@pytest.mark.parametrize(("headers", "version"), [
    ({"ETag": '"a"', "Last-Modified": DATE, "Date": LATER}, 'etag "a"'), ({"ETag": 'W/"a,bc"'}, 'etag W/"a,bc"'),
    ({"ETag": '""'}, 'etag ""'), ({"ETag": f'"{"x" * 256}"'}, f'etag "{"x" * 256}"'),
    ({"ETag": "bare", "Last-Modified": DATE, "Date": LATER}, f"modified {DATE}"),
    ({"ETag": '"a"', "Cache-Control": "no-cache, max-age=0"}, 'etag "a"'),
])  # fmt: skip
def test_a_version_is_the_entity_tag_or_else_the_date_and_goes_out_as_the_header_it_is_for(headers, version):
    assert version_of(httpx.Headers(headers)) == version
    kind, _, value = version.partition(" ")
    assert condition(version) == {"if-none-match" if kind == "etag" else "if-modified-since": value}


@pytest.mark.parametrize("headers", [
    [], [("ETag", f'"{"x" * 257}"')], [("ETag", '"a b"')], [("ETag", '"a"b"')], [("ETag", '"a'), ("Date", LATER)],
    [("ETag", "*")], [("ETag", '"a", "b"')], [("ETag", '"a"'), ("ETag", '"b"')], [("ETag", '"\xe9"')],
    [("ETag", '"a"'), ("Cache-Control", "private, NO-STORE")], [("Last-Modified", DATE)],
    [("Last-Modified", DATE), ("Date", DATE)],  # it may change again in the rest of that second
    [("Last-Modified", LATER), ("Date", DATE)], [("Last-Modified", "yesterday"), ("Date", LATER)],
    [("Last-Modified", "Sat, 99 Oct 2026 08:00:00 GMT"), ("Date", LATER)],
    [("Last-Modified", "2026-10-03T08:00:00Z"), ("Date", LATER)],
])  # fmt: skip
def test_what_cannot_be_sent_back_or_must_not_be_kept_is_no_version(headers):
    assert version_of(httpx.Headers(headers, encoding="latin-1")) is None

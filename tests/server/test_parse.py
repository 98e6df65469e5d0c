"""What a server receives: queries in canonical bytes alone, and publications, each refused with its reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import errors
from onoff.wire import MAX_ROUND, MAX_STEP, Catalogue, QueryMessage, encode_publication, parse_publication, parse_query

CATALOGUE = Catalogue(("news", "sports", "wetter/süd", "science"), 32)
STREAM = "0123456789abcdef" * 2


def body(**changes):
    data = {"catalogue": CATALOGUE.fingerprint, "sources": [0, 2], "step": 5, "stream": STREAM, **changes}
    if "held" not in data:
        data["held"] = [0] * len(data["sources"]) if isinstance(data["sources"], list) else [0]
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


@given(
    st.dictionaries(st.integers(0, 3), st.integers(0, MAX_ROUND), min_size=1),
    st.integers(0, MAX_STEP),
    st.binary(min_size=16, max_size=16),
)
def test_a_query_survives_the_wire_and_always_has_the_same_bytes(held, step, drawn):
    sources = sorted(held)
    rounds = [held[source] for source in sources]
    query = QueryMessage(CATALOGUE.fingerprint, drawn.hex(), step, tuple(sources), tuple(rounds))
    assert parse_query(query.encode(), CATALOGUE) == query
    assert query.encode() == body(sources=sources, held=rounds, step=step, stream=drawn.hex())
    assert len(query.encode()) <= CATALOGUE.query_limit


NOT_CANONICAL = [
    b"",
    b"{",
    b"[" * 100_000,
    b"{}",
    body(more=1),
    body(sources=[0, True]),
    body(sources=[]),
    body(held=[]),
    body(held=[0, 10**17]),
    body(step=-1),
    body(stream=STREAM.upper()),
    body(stream=STREAM + "\n"),
    body().replace(b'"held":[0,0],', b""),
    body().replace(b'"step":5', b'"step":5,"step":5'),
    body().replace(b",", b", "),
    json.dumps(dict(reversed(json.loads(body()).items()))).encode(),
    body().replace(b"step", b"ste\\u0070"),
]
WRONG_VALUES = [
    (body(step=MAX_STEP + 1), "wrong-step"),
    (body(sources=[0, 4]), "wrong-sources"),
    (body(sources=[0, 0]), "wrong-sources"),
    (body(sources=[2, 0]), "wrong-sources"),
    (body(held=[0]), "wrong-rounds"),
    (body(held=[0, MAX_ROUND + 1]), "wrong-rounds"),
]


@pytest.mark.parametrize(("data", "reason"), [*((data, "not-canonical") for data in NOT_CANONICAL), *WRONG_VALUES])
def test_what_is_not_a_query_is_refused_with_its_reason(data, reason):
    with pytest.raises(errors.WireError) as caught:
        parse_query(data, CATALOGUE)
    assert caught.value.reason == reason


def test_a_query_for_another_catalogue_is_told_apart_before_its_sources_are_judged():
    with pytest.raises(errors.CatalogueMismatch) as caught:
        parse_query(body(catalogue="0" * 64, sources=[99]), CATALOGUE)
    assert caught.value.expected == CATALOGUE.fingerprint
    assert caught.value.found == "0" * 64


@given(st.dictionaries(st.sampled_from(CATALOGUE.names), st.binary(max_size=32), min_size=1))
def test_a_publication_survives_the_wire(messages):
    data = encode_publication(CATALOGUE, messages)
    assert parse_publication(data, CATALOGUE) == {CATALOGUE.index[k]: v for k, v in messages.items()}
    assert len(data) <= CATALOGUE.publication_limit


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"messages": {}}, "wrong-type"),
        ({"messages": {"nobody": ""}}, "wrong-sources"),
        ({"messages": {"news": "%"}}, "wrong-type"),
        ({"messages": {"news": "YQ=\n="}}, "wrong-type"),
        ({"messages": {"news": None}}, "wrong-type"),
        ({"messages": [1]}, "wrong-type"),
        ({"more": 1}, "wrong-type"),
        ({"messages": {"news": "YWFh" * 11}}, "message-too-long"),
    ],
)
def test_what_is_not_a_publication_is_refused_with_its_reason(changes, reason):
    data = json.dumps({"catalogue": CATALOGUE.fingerprint, "messages": {"news": ""}, **changes}).encode()
    with pytest.raises(errors.WireError) as caught:
        parse_publication(data, CATALOGUE)
    assert caught.value.reason == reason

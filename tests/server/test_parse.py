"""What a server receives: queries in canonical bytes alone, and publications, each refused with its reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onoff import errors
from onoff.server.parse import parse_publication, parse_query
from onoff.wire import MAX_ROUND, MAX_STEP, Catalogue, Query, encode_publication

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
    query = Query(CATALOGUE.fingerprint, drawn.hex(), step, tuple(sources), tuple(rounds))
    assert parse_query(query.encode(), CATALOGUE) == query
    assert query.encode() == body(sources=sources, held=rounds, step=step, stream=drawn.hex())
    assert len(query.encode()) <= CATALOGUE.query_limit


def test_a_query_of_a_client_that_holds_nothing_says_so_of_every_source():
    query = Query(CATALOGUE.fingerprint, STREAM, 5, (0, 2))
    assert query == Query(CATALOGUE.fingerprint, STREAM, 5, (0, 2), (0, 0))
    assert b'"held":[0,0]' in query.encode()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "broken-json"),
        (b"\xff", "broken-json"),
        (b"{", "broken-json"),
        (b"[" * 100_000, "broken-json"),
        (b'{"step":' + b"9" * 5000 + b"}", "broken-json"),
        (b'{"step":NaN}', "broken-json"),
        (body().replace(b'"step":5', b'"step":5,"step":5'), "broken-json"),
        (b"[]", "wrong-type"),
        (b"{}", "wrong-type"),
        (body(more=1), "wrong-type"),
        (body(sources="02"), "wrong-type"),
        (body(sources=[0, True]), "wrong-type"),
        (body(sources=[0.0, 2.0]), "wrong-type"),
        (body(sources=[[0]]), "wrong-type"),
        (body(sources=None), "wrong-type"),
        (body(catalogue=5), "wrong-type"),
        (body(step="5"), "wrong-type"),
        (body(step=-1), "wrong-type"),
        (body(step=True), "wrong-type"),
        (body(step=MAX_STEP + 1), "wrong-type"),
        (body(stream=None), "wrong-type"),
        (body(stream=STREAM[1:]), "wrong-type"),
        (body(stream=STREAM + "0"), "wrong-type"),
        (body(stream=STREAM.upper()), "wrong-type"),
        (body(stream=STREAM[1:] + "g"), "wrong-type"),
        (body(stream=STREAM + "\n"), "wrong-type"),
        (body(stream=int(STREAM, 16)), "wrong-type"),
        (body().replace(b',"stream":"%b"' % STREAM.encode(), b""), "wrong-type"),
        (body().replace(b'"held":[0,0],', b""), "wrong-type"),
        (body(held=None), "wrong-type"),
        (body(held=[0, "7"]), "wrong-type"),
        (body(held=[0, True]), "wrong-type"),
        (body(held=[7.0, 0]), "wrong-type"),
        (body(held=[]), "wrong-rounds"),
        (body(held=[0]), "wrong-rounds"),
        (body(held=[0, 0, 0]), "wrong-rounds"),
        (body(held=[0, -1]), "wrong-rounds"),
        (body(held=[0, MAX_ROUND + 1]), "wrong-rounds"),
        (body(held=[0, 10**17]), "wrong-rounds"),
        (body().replace(b"[0,0]", b"[0,00]"), "broken-json"),
        (body(sources=[]), "empty-set"),
        (body(sources=[0, 4]), "unknown-source"),
        (body(sources=[-1, 0]), "unknown-source"),
        (body(sources=[0, 0]), "repeated-source"),
        (body(sources=[2, 0]), "unsorted-sources"),
        (body(sources=[0, 1, 2, 3, 3]), "too-many-sources"),
        (body() + b" ", "not-canonical"),
        (body().replace(b",", b", "), "not-canonical"),
        (json.dumps(dict(reversed(json.loads(body()).items()))).encode(), "not-canonical"),
        (body().replace(STREAM.encode(), b"\\u0030" + STREAM[1:].encode()), "not-canonical"),
        (body().replace(b"step", b"ste\\u0070"), "not-canonical"),
    ],
)
def test_what_is_not_a_query_is_refused_with_its_reason(data, reason):
    with pytest.raises(errors.QueryError) as caught:
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
        ({"messages": {}}, "empty-set"),
        ({"messages": {"nobody": ""}}, "unknown-source"),
        ({"messages": {"news": "%"}}, "wrong-type"),
        ({"messages": {"news": "ü"}}, "wrong-type"),
        ({"messages": {"news": "YQ=\n="}}, "wrong-type"),
        ({"messages": {"news": None}}, "wrong-type"),
        ({"messages": [1]}, "wrong-type"),
        ({"catalogue": 1}, "wrong-type"),
        ({"more": 1}, "wrong-type"),
        ({"messages": {"news": "YWFh" * 11}}, "message-too-long"),
    ],
)
def test_what_is_not_a_publication_is_refused_with_its_reason(changes, reason):
    data = json.dumps({"catalogue": CATALOGUE.fingerprint, "messages": {"news": ""}, **changes}).encode()
    with pytest.raises(errors.PublicationError) as caught:
        parse_publication(data, CATALOGUE)
    assert caught.value.reason == reason


def test_a_publication_with_a_repeated_name_or_for_another_catalogue_is_refused():
    repeated = encode_publication(CATALOGUE, {"news": b""}).replace(b'"news":""', b'"news":"","news":""')
    with pytest.raises(errors.PublicationError, match="repeated"):
        parse_publication(repeated, CATALOGUE)
    other = Catalogue(CATALOGUE.names, 33)
    with pytest.raises(errors.CatalogueMismatch):
        parse_publication(encode_publication(other, {"news": b""}), CATALOGUE)

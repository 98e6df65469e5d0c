"""A fuzzer against the server's own description: it stays up, and every answer is as described."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import positive_data_acceptance

from onoff.errors import WireError
from onoff.server.description import describe
from onoff.server.received import parse_query
from onoff.wire import Catalogue, Query, decode_answer
from sampling import examples
from serverprocess import ServerProcess

CATALOGUE = Catalogue(("news", "sports", "science"), 64)
# Beside the usual refusals, 413: what breaks the schema may also be longer than any query.
REFUSALS = ["400", "401", "404", "405", "409", "413", "415", "422"]
schema = schemathesis.openapi.from_dict(
    describe(CATALOGUE, readers_need_token=False),
    config=schemathesis.Config.from_dict({"checks": {"negative_data_rejection": {"expected-statuses": REFUSALS}}}),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    directory = tmp_path_factory.mktemp("fuzz")
    with ServerProcess(directory, names=CATALOGUE.names, length=CATALOGUE.length) as process:
        yield process


@schema.parametrize()
@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
def test_every_answer_is_as_described(case, server):
    # That sources ascend and JSON is canonical no schema can say: not all that the schema allows is accepted.
    excluded = [positive_data_acceptance]
    case.call_and_validate(server.url, headers=server.authorization, excluded_checks=excluded)
    assert server.process.poll() is None
    assert server.http.get("/health").status_code == 200


def damaged(body):
    """The body with one piece cut out, doubled or replaced."""
    place = st.integers(0, len(body))
    return st.tuples(place, place, st.binary(max_size=4)).map(lambda cut: body[: cut[0]] + cut[2] + body[cut[1] :])


@given(st.one_of(st.binary(max_size=200), damaged(Query(CATALOGUE.fingerprint, "0" * 32, 12, (0, 2)).encode())))
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_get_either_the_frames_they_ask_for_or_a_problem(server, body):
    response = server.http.post("/v1/query", content=body, headers={"Content-Type": "application/json"})
    if response.status_code == 200:
        query = parse_query(body, CATALOGUE)
        assert len(decode_answer(CATALOGUE, query.sources, response.content)) == len(query.sources)
    else:
        assert response.status_code in {400, 409, 413, 422}
        assert response.headers["content-type"] == "application/problem+json"
        if response.json()["type"].endswith("stale-step"):  # another set for a step that was asked for before
            return
        with pytest.raises(WireError):
            parse_query(body, CATALOGUE)


def test_the_description_covers_every_path(server):
    described = server.http.get("/openapi.json").json()
    assert described == describe(CATALOGUE, readers_need_token=False)
    assert described["openapi"].startswith("3.1")
    assert set(described["paths"]) == {
        "/v1/catalogue",
        "/v1/query",
        "/v1/messages/{name}",
        "/v1/rounds",
        "/health",
        "/metrics",
        "/openapi.json",
    }

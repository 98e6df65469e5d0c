"""Every public name, called with what cannot be meant: it works, or an error of ours says what is needed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import onoff
from onoff import (
    Chain,
    HttpTransport,
    OnoffError,
    OnoffTransport,
    Plan,
    Planner,
    Posterior,
    Settings,
    bounds,
    connect,
    connect_sync,
    fit,
    follows,
    httpx_transport,
    plan,
)
from onoff.logs.fit import FitOptions

WRONG = (
    None, "x", b"x", -1, 10**30, float("nan"), np.float64(2), np.int64(7), np.True_, [], [None], "", "\0", np.eye(2),
)  # fmt: skip
CHAIN = Chain.symmetric(4, 0.4, list("abcd"))
URLS = {name: f"http://127.0.0.1:1/{name}" for name in "abcd"}
# What a user gets and does not make: their fields are the results of the others.
RESULTS = {"Client", "Bounds", "Fit", "Message", "errors", "OnoffError"}


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    """For each public name the ways to call it, with arguments that work."""
    place = tmp_path_factory.mktemp("wrong")
    rows = ["user,time,source", *(f"u{i % 3},{i},{'abcd'[i * i % 4]}" for i in range(40))]
    (place / "log.csv").write_text("\n".join(rows))
    (place / "urls.json").write_text(json.dumps(URLS))
    CHAIN.save(place / "chain.json")
    made = plan(CHAIN, 1)
    made.save(place / "plan")
    posterior = CHAIN.posterior(1)
    planner = Planner(CHAIN, place / "plans", background=False)
    door = {
        **Settings.__init__.__kwdefaults__, "chain": CHAIN, "server": "http://127.0.0.1:1", "journal": place / "j",
        "plans": place / "plans", "background": False,
    }  # fmt: skip
    limits = {"timeout": 1.0, "deadline": 1.0}
    return {
        "Chain": [
            (Chain, {"P": CHAIN.P, "names": list("abcd")}),
            (Chain.from_counts, {"counts": np.ones((3, 3)), "names": None, "smoothing": 1.0}),
            (Chain.from_dict, {"data": CHAIN.as_dict()}),
            (Chain.load, {"path": place / "chain.json"}),
            (CHAIN.save, {"path": place / "other.json"}),
            (CHAIN.index, {"name": "a"}),
            (CHAIN.power, {"k": 2}),
            (CHAIN.posterior, {"lag": 1}),
        ],
        "Posterior": [
            (Posterior, {"chain": CHAIN, "lag": 1}),
            (posterior.row, {"last": 0, "next": 1}),
            (posterior.check, {"request": 0, "last": 0, "next": 0}),
            (posterior.group, {"index": 0}),
        ],
        "bounds": [(bounds, {"posterior": CHAIN, "lag": 1}), (bounds, {"posterior": posterior})],
        "plan": [
            (plan, {"chain": CHAIN, "lag": 1, "scheme": "everything", "gap": 0.1, "time_limit": None}),
        ],
        "Plan": [
            (made.draw, {"request": 0, "last": 0, "next": 0, "lag": 1}),
            (made.rounding_at, {"lag": 1}),
            (made.save, {"path": place / "saved"}),
            (Plan.load, {"path": place / "plan"}),
        ],
        "Planner": [
            (partial(Planner, background=False), {"chain": CHAIN, "directory": place / "plans"}),
            (planner.best, {"lag": 1}),
        ],
        "follows": [(follows, {"chain": CHAIN, "requests": [0, 1], "begins": (), "false_alarms": 0.01})],
        "fit": [(fit, {"log": place / "log.csv", **vars(FitOptions())})],
        "HttpTransport": [
            (HttpTransport, {"sources": URLS, "body_limit": 99, "answer_limit": 99, **limits}),
            (HttpTransport.load, {"file": place / "urls.json", "deadline": 1.0}),
        ],
        "OnoffTransport": [(OnoffTransport, {"url": "http://127.0.0.1:1", "token": "x", **limits})],
        "connect": [(connect, door), (connect, {"chain": CHAIN, "urls": URLS, "journal": place / "j"})],
        "connect_sync": [(connect_sync, door)],
        "httpx_transport": [
            (httpx_transport, {"client": connect(urls=URLS, journal=place / "j"), "private": None, "others": None})
        ],
        "Settings": [(Settings, door)],
    }  # fmt: skip


NAMES = sorted(set(onoff.__all__) - RESULTS)


def test_every_public_name_that_can_be_called_is_called_here(calls):
    assert sorted(calls) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_what_cannot_be_meant_is_no_raw_error(calls, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw, refused = [], 0
    for function, arguments in calls[name]:
        function(**arguments)
        for argument in arguments:
            for wrong in WRONG:
                try:
                    found = function(**{**arguments, argument: wrong})
                    if isinstance(found, Planner):
                        found.close()
                except OnoffError:
                    refused += 1
                except Exception as error:
                    raw.append(f"{function.__qualname__}({argument}={wrong!r}): {error!r}")
    assert raw == []
    assert refused > 0


def test_bounds_of_a_chain_and_a_lag_are_those_of_its_posterior():
    own, other = bounds(CHAIN, 3), bounds(CHAIN.posterior(3))
    assert (own.inner, own.outer) == (other.inner, other.outer)
    for wrong in ((CHAIN,), (CHAIN.posterior(3), 3)):
        with pytest.raises(OnoffError, match=r"bounds\(chain, 3\)"):
            bounds(*wrong)


def test_a_file_is_named_by_words_or_by_a_path():
    from onoff.files import path_of

    assert path_of("a/b", "it") == path_of(Path("a/b"), "it") == Path("a/b")
    for wrong in (b"a", "", "a\0b", None, 5):
        with pytest.raises(OnoffError, match=r"it is .*the name of a file is needed"):
            path_of(wrong, "it")

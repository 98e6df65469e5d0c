"""The errors: a tree that its docstring shows, data as attributes, and advice that the reader's edge may replace."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from onoff import errors
from onoff.errors import OnoffError, PendingRequest, Unavailable

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, OnoffError)]


def test_the_docstring_shows_the_tree():
    shown, path = {}, []
    for indent, name in re.findall(r"^    ([ │]*)(?:[├└]── )?(\w+)(?: {2,}.*)?$", errors.__doc__, flags=re.M):
        depth = len(indent) // 4 + (name != "OnoffError")
        path[depth:] = [name]
        shown[name] = path[depth - 1] if depth else "Exception"
    assert shown == {kind.__name__: kind.__bases__[0].__name__ for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_whole_out_of_another_process(kind):
    data = {name: f"some {name}" for name in inspect.get_annotations(kind)}
    error = kind("what is wrong", **data)
    error.advice = "Mend it."
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, "what is wrong. Mend it.", vars(error))


def test_advice_is_for_python_unless_it_is_replaced():
    error = PendingRequest("a request is pending", step=3, source="news")
    assert str(error) == "a request is pending. Client.resume() finishes it."
    error.advice = "`onoff resume` finishes it."
    assert (str(error), error.facts) == ("a request is pending. `onoff resume` finishes it.", "a request is pending")
    assert str(Unavailable("nobody there")) == "nobody there"
    assert str(Unavailable("nobody there!", pending=False)) == "nobody there! Nothing was asked."

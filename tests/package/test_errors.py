"""The errors: data as attributes, and advice that the reader's edge may replace."""

from __future__ import annotations

import inspect
import pickle

import pytest

from onoff import errors
from onoff.errors import OnoffError, PendingRequest, SourceError, Unavailable

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, OnoffError)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_comes_whole_out_of_another_process(kind):
    data = {name: f"some {name}" for name in inspect.get_annotations(kind)}
    error = kind("what is wrong", **data)
    error.advice = "Mend it."
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (kind, "what is wrong. Mend it.", vars(error))


def test_data_that_a_kind_of_error_does_not_have_is_a_mistake_of_the_program():
    with pytest.raises(AttributeError, match="colour"):
        SourceError("x", status=404, colour="red")


def test_advice_is_for_python_unless_it_is_replaced():
    error = PendingRequest("a request is pending", step=3, source="news")
    assert str(error) == "a request is pending. Client.resume() finishes it."
    error.advice = "`onoff resume` finishes it."
    assert (str(error), error.facts) == ("a request is pending. `onoff resume` finishes it.", "a request is pending")
    assert str(Unavailable("nobody there")) == "nobody there"
    assert str(Unavailable("nobody there!", pending=False)) == "nobody there! Nothing was asked."

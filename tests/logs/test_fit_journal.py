"""What a chain fitted to a journal tells of private requests: nothing, by enumeration of all streams of 3 sources."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from fractions import Fraction
from itertools import pairwise
from math import log2
from pathlib import Path

import pytest

from exactstreams import chain_of, path_law
from onoff.errors import LogError
from onoff.logs import journals
from onoff.logs.journals import JournalRequests

NAMES = ("a", "b", "c")
P = chain_of([[8, 1, 1], [1, 7, 2], [1, 2, 7]])
ON, OFF = True, False
STATUSES = (OFF, OFF, ON, OFF, OFF)


def bits(length, hidden, shown, known=lambda _: None):
    """I(hidden; shown | known) of functions of a stream; exactly 0 if they are independent."""
    joint, rows, columns, given = (defaultdict(Fraction) for _ in range(4))
    for path, chance in path_law(P, length - 1).items():
        x, y, z = hidden(path), shown(path), known(path)
        for table, key in ((joint, (x, y, z)), (rows, (x, z)), (columns, (y, z)), (given, z)):
            table[key] += chance
    ratios = {(x, y, z): p * given[z] / (rows[x, z] * columns[y, z]) for (x, y, z), p in joint.items()}
    return sum(float(p) * log2(ratios[key]) for key, p in joint.items() if ratios[key] != 1)


def counts(requests):
    """What a chain is made of: how often each source follows each. Nothing is counted across a None."""
    return frozenset(Counter(pair for pair in pairwise(requests) if None not in pair).items())


def fitted(monkeypatch, private, **more):
    """What a fit shows of a stream: the counts of its journal, or the words of the refusal."""

    def shown(path):
        journal = JournalRequests(**{"names": NAMES, "chain": None, "promise": "past", "requests": path,
                                     "private": private, **more})  # fmt: skip
        monkeypatch.setattr(journals, "read_journal", lambda _: journal)
        try:
            return counts(journals.open_requests([Path("journal")])[1])
        except LogError as error:
            return str(error)

    return shown


def middle(path):
    return path[2]


def sensitive_requests(path):
    return tuple(x == 2 for x in path)


def without(hidden):
    """The mistake of before: hidden requests are left out of the counts."""
    return lambda path: counts([None if hide else x for x, hide in zip(path, hidden(path), strict=True)])


def before_the_first(hidden):
    """Another mistake: only the requests before the first hidden one are counted."""
    return lambda path: counts(path[: (*hidden(path), True).index(True)])


def test_counts_of_open_requests_tell_of_the_private_one_between_them_and_a_refusal_does_not(monkeypatch):
    planted = {"open pairs": without(lambda _: STATUSES), "before the first": before_the_first(lambda _: STATUSES)}
    leaks = {name: bits(5, middle, shown) for name, shown in planted.items()}
    assert leaks["open pairs"] > 0.5
    assert leaks["before the first"] > 0.5
    assert bits(5, middle, fitted(monkeypatch, STATUSES)) == 0
    assert bits(5, middle, fitted(monkeypatch, (OFF,) * 5, chain="f" * 64, promise="both")) == 0


def test_a_refusal_does_not_depend_on_whether_a_sensitive_source_was_asked_for(monkeypatch):
    def if_asked(path):
        return "refused" if 2 in path else counts(path)

    for shown in (without(sensitive_requests), before_the_first(sensitive_requests), if_asked):
        assert bits(4, sensitive_requests, shown) > 0.5
    assert bits(4, sensitive_requests, fitted(monkeypatch, (OFF,) * 4, sensitive=frozenset({2}))) == 0


def test_a_chain_made_before_the_first_private_request_adds_nothing_to_the_open_requests(monkeypatch):
    """The last request is private, and made in another journal."""
    shown = fitted(monkeypatch, (OFF,) * 3)
    assert len({shown(path) for path in path_law(P, 2)}) > 20
    assert bits(4, lambda path: path[3], lambda path: shown(path[:3]), lambda path: path[:3]) == 0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"private": (OFF, ON)}, r"has requests that were asked ON \(1\): a chain is public"),
        ({"sensitive": frozenset({1})}, "has sensitive sources: a chain is public"),
        ({"promise": "both", "chain": "f" * 64}, "keeps the promise both: a chain is public"),
        ({"promise": "all"}, "keeps the promise all: a chain is public"),
        ({"names": None}, ".*does not know the names of its sources"),
        ({"requests": (), "private": ()}, "no request yet"),
    ],
)
def test_a_journal_is_refused_with_the_reason_and_what_to_do(monkeypatch, more, words):
    said = fitted(monkeypatch, **{"private": (OFF, OFF), **more})((0, 1))
    assert re.match(f"journal: {words}", said)
    assert ("Import a chain, or learn with a new journal" in said) == ("public" in words)

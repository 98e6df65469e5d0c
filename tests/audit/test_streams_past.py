"""The promise `past` on whole streams: the engine tells nothing, engines with a planted mistake are found, misfit."""

from __future__ import annotations

from itertools import product
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exactstreams import chain_of, query_laws, stream_law
from onoff import Chain, OnoffError
from onoff.audit import enumeration
from onoff.audit.clients import Naive, Past
from onoff.audit.streams import audit_streams, parse_statuses
from onoff.model import misfit as model
from onoff.past import PastState
from onoff.testing import dense
from oracles import random_chain
from pastkit import Faithful, World, information
from sampling import examples

THREE = random_chain("dense", 3, 1)
FOUR = random_chain("dense", 4, 2)
ENDS = Chain([[0, 1, 0, 0], [0.5, 0, 0.25, 0.25], [0.2, 0.3, 0, 0.5], [0, 0, 0, 1]])
NEAR = Chain([[0.5, 0.3, 0.2], [0.46, 0.3, 0.24], [0.1, 0.2, 0.7]])
USED = Chain([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]])
FAR = Chain([[0.7, 0.2, 0.1], [0.1, 0.2, 0.7], [0.4, 0.5, 0.1]])
WORLDS = [
    (THREE, ()),
    (THREE, (1,)),
    (THREE, (0, 1, 2)),
    (random_chain("sparse", 3, 1), (2,)),
    (ENDS, (1,)),
    (random_chain("periodic", 4, 1), (1,)),
]
pairs = st.integers(2, 3).flatmap(lambda n: st.tuples(dense(n), dense(n), st.sampled_from([0.0, 0.02, 0.3, 1.0])))


def audited(chain, sensitive, text, engine=None, **options):
    client = Past(engine or PastState.start(chain, sensitive), chain.n, sensitive)
    return audit_streams(chain, parse_statuses(text), client, "past", sensitive, **{"uniform": True, **options})


def most_bits(found):
    return max(step.bits for step in found.steps)


@pytest.mark.parametrize(("chain", "sensitive"), WORLDS)
def test_the_engine_tells_nothing_whatever_the_statuses(chain, sensitive):
    for rest in product("01", repeat=3):
        found = audited(chain, sensitive, "1" + "".join(rest))
        assert (found.method, found.holds, found.findings) == ("exact", True, ())
        assert most_bits(found) < 1e-25


def test_what_is_found_agrees_with_a_referee_that_shares_no_code():
    """Leaky clients in fractions: what a query tells given those before."""
    P = chain_of([[1, 3, 2], [2, 1, 5], [4, 1, 1]])
    chain = Chain([[float(p) for p in row] for row in P])
    for text, sensitive in (("1010", ()), ("1001", (2,)), ("100", (0, 1))):
        private = parse_statuses(text)

        def draw(queries, path, sensitive=sensitive, private=private):
            full = private[len(queries)] or path[-1] in sensitive
            return {frozenset(range(3) if full else path[-1:]): 1}

        joint = stream_law(P, private, draw)
        found = audit_streams(chain, private, Naive(3, sensitive), "past", sensitive, uniform=True)
        assert found.holds is None
        for t, step in enumerate(found.steps):
            assert step.bits == pytest.approx(bits_at(joint, private, sensitive, t), abs=1e-12)


def bits_at(joint, private, sensitive, t):
    total = 0.0
    for laws in query_laws(joint, private, frozenset(sensitive), t).values():
        mass = sum(p for p, _ in laws.values())
        for p, law in laws.values():
            for query, chance in law.items():
                mean = sum(q * other.get(query, 0) for q, other in laws.values()) / mass
                total += float(p * chance) * log2(chance / mean)
    return total


def test_mistakes_tell_as_much_as_the_kit_says():
    """An engine that goes on from context 0 whatever was asked ON: two enumerations that share nothing agree."""

    class Forgets(Faithful):
        def context(self, state, request, context, private):
            return state.context(0 if private else request, context, private)

    expected = information(World(THREE), (True, False, False), Forgets())
    assert most_bits(audited(THREE, (), "100", Forgetful(PastState.start(THREE)))) == pytest.approx(expected, rel=1e-9)


# Planted mistakes


class Wrong:
    """An engine with a mistake: whatever is not overridden is the engine's."""

    def __init__(self, state):
        self.state = state

    def __getattr__(self, name):
        return getattr(self.state, name)

    def prepare(self):
        return self.state.prepare()

    def advance(self, step, query):
        return type(self)(self.state.advance(step, query))

    def context(self, request, context, private):
        return self.state.context(request, context, private)


class Forgetful(Wrong):
    """Goes on from the first context whatever was asked ON."""

    def context(self, request, context, private):
        return self.state.context(0 if private else request, context, private)


class OfAnother(Wrong):
    """Takes the row of another context, and records it like that."""

    @property
    def joined(self):
        return (*self.state.joined[1:], self.state.joined[0])

    def context(self, request, context, private):
        return self.joined[request] if private else self.state.context(request, context, private)


class NotJoined(Wrong):
    """Stays in its context after a sensitive request."""

    def context(self, request, context, private):
        if not private and request in self.state.sensitive and self.state.place[context] >= 0:
            return self.state.place[context]
        return self.state.context(request, context, private)


class Reused(Wrong):
    """Draws from the first step again, as if its query had not been asked."""

    def advance(self, step, query):  # noqa: ARG002
        again = type(self)(self.state)
        again.place, again.joined = tuple(self.state.contexts), self.state.joined
        return again

    def context(self, request, context, private):
        return self.joined[request] if private or request in self.state.sensitive else context


class Restored(Wrong):
    """Takes the rows of an older step: after the second query the state is that after the first."""

    def __init__(self, state, age=0):
        super().__init__(state)
        self.age = age

    def advance(self, step, query):
        if self.age == 1:
            back = type(self)(self.state, 2)
            back.place = tuple(self.state.contexts)
            return back
        return type(self)(self.state.advance(step, query), self.age + 1)

    def context(self, request, context, private):
        if self.age == 2:
            return self.joined[request] if request in self.state.sensitive else context
        return self.state.context(request, context, private)


class WrongStep(Wrong):
    """Prepares a step that is wrong."""

    def prepare(self):
        return self.wrong(self.state.prepare())


class Changed:
    """A step of which some is overridden."""

    def __init__(self, step):
        self.step = step

    def __getattr__(self, name):
        return getattr(self.step, name)

    def as_dict(self):
        return self.step.as_dict()

    def draw(self, request, context, randbelow):
        return self.step.draw(request, context, randbelow)


class LeftOut(WrongStep):
    """Leaves the sensitive sources out of one set."""

    class wrong(Changed):  # noqa: N801
        def as_dict(self):
            found = self.step.as_dict()
            found["sets"][0] = [x for x in found["sets"][0] if x not in self.step.state.sensitive]
            return found

    def advance(self, step, query):
        known = query if query in step.step.sets else step.step.sets[0]
        return type(self)(self.state.advance(step.step, known))


class Unwrapped(WrongStep):
    def advance(self, step, query):
        return type(self)(self.state.advance(step.step, query))


class LeftOutAtTheDraw(Unwrapped):
    """Records all sensitive sources and sends none of them."""

    class wrong(Changed):  # noqa: N801
        def draw(self, request, context, randbelow):
            found = self.step.draw(request, context, randbelow)
            return tuple(x for x in found if x not in self.step.state.sensitive or x == request)


class SmallIfSensitive(Unwrapped):
    """Draws the smallest set when the request is sensitive: it is in every set anyway."""

    class wrong(Changed):  # noqa: N801
        def draw(self, request, context, randbelow):
            found = self.step.draw(request, context, randbelow)
            return min(self.step.sets, key=len) if request in self.step.state.sensitive else found


class FullIfSensitive(Unwrapped):
    """Asks for everything when the request is sensitive."""

    class wrong(Changed):  # noqa: N801
        def draw(self, request, context, randbelow):
            found = self.step.draw(request, context, randbelow)
            return self.step.sets[-1] if request in self.step.state.sensitive else found


class Twice(Unwrapped):
    """Draws again when the set is large."""

    class wrong(Changed):  # noqa: N801
        def draw(self, request, context, randbelow):
            found = self.step.draw(request, context, randbelow)
            return self.step.draw(request, context, randbelow) if len(found) > 2 else found


class OneUnitOff(Unwrapped):
    """Has a unit too few in one column."""

    class wrong(Changed):  # noqa: N801
        def as_dict(self):
            found = self.step.as_dict()
            data = found["encoders"]["0"][2]
            data[data.index(max(data))] -= 1
            return found


class Boasting(Unwrapped):
    """States a rounding that covers everything."""

    class wrong(Changed):  # noqa: N801
        def as_dict(self):
            return self.step.as_dict() | {"rounding": 1.0}


MISTAKES = {
    "a private request forgotten": (THREE, (), "100", Forgetful, "context", True),
    "the row of another context": (THREE, (), "10", OfAnother, None, True),
    "contexts not joined after an OFF step": (FOUR, (1,), "100", NotJoined, "context", True),
    "an encoder used again after the query changed": (THREE, (), "100", Reused, None, True),
    "rows restored from an older step": (THREE, (), "1000", Restored, None, True),
    "sensitive sources missing from one set": (THREE, (1,), "10", LeftOut, "sensitive", False),
    "sensitive sources left out when drawing": (THREE, (1,), "10", LeftOutAtTheDraw, "draw", False),
    "drawn differently when sensitive": (FOUR, (1,), "10", SmallIfSensitive, "draw", False),
    "the full set when sensitive": (FOUR, (1,), "10", FullIfSensitive, "draw", False),
    "drawn twice": (FOUR, (), "10", Twice, "draw", False),
    "a unit too few": (THREE, (), "10", OneUnitOff, "columns", False),
    "a statement that covers everything": (THREE, (), "10", Boasting, "coarse", False),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_engine_with_a_planted_mistake_is_found(name):
    chain, sensitive, text, wrong, rule, tells = MISTAKES[name]
    found = audited(chain, sensitive, text, wrong(PastState.start(chain, sensitive)))
    assert not found.holds
    assert rule is None or rule in {finding.rule for finding in found.findings}
    if tells:
        assert most_bits(found) > 1e-4
        assert max(step.distance or 0.0 for step in found.steps) > 1e-3


def test_merging_unequal_rows_is_within_what_is_charged_and_without_a_charge_it_is_found(monkeypatch):
    monkeypatch.setattr("onoff.past.contexts.ALIKE", 0.12)
    charged = audited(NEAR, (), "1000")
    assert most_bits(charged) > 1e-9
    assert {finding.rule for finding in charged.findings} == {"coarse"}  # stated, and too much to be certified
    assert all(step.distance <= 2 * step.stated for step in charged.steps if step.distance is not None)
    for charge in (0.0, 1e-15):
        monkeypatch.setattr("onoff.past.contexts._charge", lambda *parts, charge=charge: charge)
        understated = audited(NEAR, (), "1000")
        assert (understated.holds, understated.findings) == (False, ())
        assert any(step.distance > 1000 * step.stated for step in understated.steps if step.distance is not None)


# Requests that follow another chain


def towards(used, other, share):
    return Chain((1 - share) * used.P + share * other.P)


def misfit(used, true, text, sensitive=(), engine=None):
    return audited(used, sensitive, text, engine, true=true, uniform=False)


@settings(max_examples=examples(40), deadline=None)
@given(pairs, st.sampled_from(["10", "100", "1001", "1010"]), st.sampled_from([(), (1,)]))
def test_what_is_told_under_the_true_chain_is_within_the_bound(pair, text, sensitive):
    used, other, share = pair
    found = misfit(used, towards(used, other, share), text, sensitive)
    assert (found.method, found.findings, found.holds) == ("exact", (), True)
    for here, anywhere in zip(found.misfit.distances, found.misfit.anywhere, strict=True):
        assert here <= anywhere * (1 + 1e-9)
    if share == 0:
        assert max(found.misfit.allowed) < 1e-12
        assert most_bits(found) < 1e-24


def test_the_bound_is_that_of_its_definition():
    """Steps 2 and 3 are OFF: d is eps under the start law, then also under the law one step on; ON starts anew."""
    eps = np.abs(USED.P - FAR.P).sum(axis=1) / 2
    found = misfit(USED, FAR, "10010").misfit
    first = FAR.stationary() @ eps
    assert found.distances == pytest.approx((0, first, 2 * first, 0, first), abs=1e-11)
    assert found.allowed == pytest.approx((0, first, 3 * first, 0, first), abs=1e-11)
    assert found.anywhere == pytest.approx((0, eps.max(), 2 * eps.max(), 0, eps.max()), abs=1e-11)
    assert found.guess == 1.0
    near = misfit(USED, towards(USED, FAR, 0.01), "1001").misfit
    d = near.distances[1]
    assert near.bits[1] == pytest.approx(-d * log2(d) - (1 - d) * log2(1 - d) + d * log2(3))
    assert near.guess == pytest.approx(2 * near.anywhere[2])
    assert misfit(USED, FAR, "10", (1,)).misfit.allowed[1] == pytest.approx(2 * first)


def test_what_is_found_is_what_all_paths_of_the_true_chain_tell():
    """Bits about a private request from the next query: by brute force over pairs of requests."""
    state = PastState.start(USED)
    step = state.prepare()
    start, laws = FAR.stationary(), []
    for i in range(3):
        table = step.encoder(state.context(i, None, True)).toarray()
        laws.append(FAR.P[i] @ (table / table.sum(axis=1, keepdims=True)))
    mean = start @ np.array(laws)
    expected = sum(start[i] * law @ np.log2(law / mean) for i, law in enumerate(laws))
    assert most_bits(misfit(USED, FAR, "10")) == pytest.approx(expected, rel=1e-9)
    assert expected > 1e-3


def test_a_bound_that_is_none_is_seen_and_so_is_an_engine_that_leaks(monkeypatch):
    """Planted: a misfit forgotten, halved, or of other rows; a mistake under a chain that is nearly right."""
    assert misfit(USED, FAR, "100").holds
    near = misfit(USED, towards(USED, FAR, 1e-6), "10", engine=Forgetful(PastState.start(USED)))
    assert not near.holds
    assert near.steps[1].bits > near.misfit.bits[1]
    exact = model.row_misfit
    for wrong in (
        lambda true, used: np.zeros(3),
        lambda true, used: exact(true, used) / 2,
        lambda true, used: np.abs(true.P.T - used.P.T).max(axis=1) / 4,
    ):
        monkeypatch.setattr(model, "row_misfit", wrong)
        assert not misfit(USED, FAR, "10").holds


def test_streams_of_another_chain_that_are_too_many_are_an_error(monkeypatch):
    monkeypatch.setattr(enumeration, "STATES", 0)
    with pytest.raises(OnoffError, match="fewer steps"):
        misfit(USED, towards(USED, FAR, 0.1), "1000")


def test_a_true_chain_with_other_sources_or_steps_is_refused():
    with pytest.raises(OnoffError):
        misfit(USED, Chain(FAR.P, ["a", "b", "c"]), "10")
    with pytest.raises(OnoffError):
        misfit(Chain([[0, 1, 0], [0.5, 0, 0.5], [0.2, 0.3, 0.5]]), FAR, "10")

"""The client's habits in the journal, and in words for a person (`onoff.past.habits` has the rules)."""

from __future__ import annotations

import json
import logging
import shlex
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from onoff.client.disk import explain_errors
from onoff.errors import OnoffError
from onoff.model.chain import Chain, UnknownChain
from onoff.past import Habits, PublicState
from onoff.past.habits import requests_needed

log = logging.getLogger("onoff.client")

MOST_LEARNED = 1000  # sources: more take over 10,000 open requests to learn, and room for their square


@dataclass(frozen=True)
class HabitsStatus:
    """How far a journal has come with its habits, for a person.

    The `stage` is one of these:

    - "learning": every query asks for everything. The client has `noted` as many transitions, from one open
    request to the next, of the `needed` ones.
    - "complete": the chain is complete. The next request must be OFF: a chain is used before anything private.
    - "known": queries are drawn with the chain.
    - "all": every query asks for everything, to the end. If `blown`, requests do not follow the chain: another model
    gains `bits` for each request.
    """

    stage: str
    noted: int
    needed: int
    blown: bool
    bits: float

    @classmethod
    def of(cls, habits: Habits) -> HabitsStatus:
        noted = int(habits.transitions.sum()) if habits.stage == "learning" else 0
        return cls(habits.stage, noted, requests_needed(len(habits.chain.P)), habits.blown, habits.bits)

    @property
    def brief(self) -> str:
        """The stage for a header, with its progress or the reason why it will stay."""
        if self.stage == "learning":
            return f"learning; {self.noted} of {self.needed} transitions are noted; stay OFF"
        if self.stage == "complete":
            return "complete; make the next request OFF"
        why = f"; requests do not follow the chain ({self.bits:.1f} bits a request)" if self.blown else ""
        return self.stage + why

    def words(self, journal: str | Path) -> str:
        """Explain the stage, and what to do next."""
        again = (
            "to learn anew, add `--relearn` (in Python relearn=True) once to `onoff proxy`, or to "
            f"`onoff get --journal {shlex.quote(str(journal))}`: "
            "what is learned then tells a little about the request that was private last"
        )
        match self.stage:
            case "learning":
                return (
                    f"learning: {self.noted} transitions of {self.needed} are noted, and everything is asked for. "
                    "Stay OFF until they are complete: a private request before that ends the learning, and then "
                    "everything is asked for to the end"
                )
            case "complete":
                return (
                    "the habits are complete. Make the next request OFF: a chain must be used before anything private "
                    "is asked, else everything is asked for to the end"
                )
            case "known":
                gain = f"a better model gains {self.bits:.2f} bits a request"
                return f"queries are drawn with the chain, and the fuse is whole: {gain}"
            case _ if self.blown:
                return (
                    f"your requests DO NOT FOLLOW the chain (a better model gains {self.bits:.1f} bits a request), so "
                    "every request asks for everything now, which hides all of them. If you reload all sources in a "
                    f"fixed order, leave it so. If your habits have changed, {again}"
                )
        return (
            "every request asks for everything that is not fresh, which hides all of them. A request was private "
            "before the habits were complete, or the promise is `all`. To download less, give a new journal a chain, "
            f"or {again}"
        )


def say_change(before: Habits, after: Habits, journal: Path) -> None:
    """Log a change of the habits that a person should know of."""
    if after.stage not in (before.stage, "known"):
        log.warning("%s", HabitsStatus.of(after).words(journal))
    elif after.chain is not before.chain or after.stage != before.stage:
        log.info("%s", HabitsStatus.of(after).words(journal))


def check_learning(n: int) -> None:
    """Raise `OnoffError` if habits over n sources are too many to learn."""
    if n > MOST_LEARNED:
        raise OnoffError(
            f"habits are learned for at most {MOST_LEARNED:,} sources, and these are {n:,}: take the promise 'all' "
            "(--promise all), give a chain (--chain), or leave sources out"
        )


def chain_row(step: int, habits: Habits) -> dict[str, Any]:
    """The row of a journal for a chain that serves from `step` on."""
    chain = habits.chain
    weight = None if chain.weight is None else json.dumps(chain.weight.tolist())
    states, matrix = json.dumps(chain.states[chain.n :]), b64encode(chain.P.astype("<f8").tobytes()).decode()
    return {"step": step, "weight": weight, "states": states, "matrix": matrix}


def forgotten_row(step: int) -> dict[str, Any]:
    """The row for habits that are learned anew from `step` on."""
    return {"step": step, "weight": None, "states": "[]", "matrix": ""}


def chain_of_row(row: Mapping[str, Any], names: Sequence[str]) -> Chain:
    """The chain of such a row, to the bit."""
    if not row["matrix"]:
        return UnknownChain(names)
    weight = None if row["weight"] is None else json.loads(row["weight"])
    matrix = np.frombuffer(b64decode(row["matrix"]), "<f8").reshape(-1, len(names))
    return Chain(matrix, names, weight, [*((x,) for x in range(len(names))), *json.loads(row["states"])])


def new_state(stage: str, sensitive: Sequence[int]) -> dict[str, Any]:
    """What a new journal keeps of habits at this stage."""
    habits = {"stage": stage, "wealth": list(Habits.wealth), "bets": 0, "counts": []}
    return {"habits": habits, "sensitive": list(sensitive), "queries": []}


def read_public(path: Path, chain: Chain, kept: Mapping[str, Any], newest: Mapping[str, Any] | None) -> PublicState:
    """The public state that the journal at `path` has `kept`, for its `newest` chain or the one it was made with.

    One that no client writes is damage.
    """
    with explain_errors(path):
        known = chain if newest is None else chain_of_row(newest, chain.names)
        return PublicState.from_dict(known, dict(kept))

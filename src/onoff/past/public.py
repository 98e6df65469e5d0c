"""All that is public between two steps of a client that keeps the promise `past` or `all`: habits, and rows.

Which law a query is drawn from, whether everything is asked for, and when the chain changes follow from it alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

from onoff.model.chain import Chain
from onoff.past.habits import Habits
from onoff.past.state import PastState, Step
from onoff.types import Query


@dataclass(frozen=True)
class PublicState:
    """`rows` are those after the newest query; None until a request has counted as ON, and where no law is needed."""

    habits: Habits
    sensitive: tuple[int, ...] = ()
    rows: PastState | None = None

    def asks_for_all(self, private: bool) -> bool:
        """True if the next step asks for everything. A private request always does."""
        return private or self.rows is None or self.habits.stage not in ("fixed", "known")

    def after_everything(self, request: int, private: bool, counts: bool) -> Self:
        """Advance by a full-set step. `private`: it was asked ON; `counts`: it counts as ON."""
        if self.habits.stage in ("learn", "fixed"):
            habits = self.habits.learned(request, private)
        elif self.habits.stage == "known":
            habits = self.habits.asked(tuple(range(self.habits.chain.n)), private=True)
        else:
            habits = self.habits
        rows = None
        if counts and habits.stage in ("fixed", "known"):
            state = self.rows
            rows = PastState.start(habits.chain, self.sensitive) if state is None else state.after_full_set()
        return replace(self, habits=habits, rows=_served_by(habits.chain, rows))

    def after(self, step: Step, query: Query) -> Self:
        """After an OFF step."""
        assert self.rows is not None
        rows = self.rows.advance(step, query)
        if self.sensitive:  # no query shows an open request: nothing is counted
            return replace(self, rows=rows)
        habits = self.habits.asked(query, private=False)
        return replace(self, habits=habits, rows=None if habits.stage == "all" else _served_by(habits.chain, rows))

    def as_dict(self) -> dict[str, Any]:
        """The state for a journal, exact to the bit, without the chain. Nothing in it is hidden from the server."""
        rows = None if self.rows is None else self.rows.as_dict()
        return {"habits": self.habits.as_dict(), "sensitive": list(self.sensitive), "rows": rows}

    @classmethod
    def from_dict(cls, chain: Chain, data: dict[str, Any]) -> Self:
        """Read what `as_dict` wrote. Raises `PlanError` if it is for another chain or is damaged."""
        rows = None if data["rows"] is None else PastState.from_dict(chain, data["rows"])
        return cls(Habits.from_dict(chain, data["habits"]), tuple(data["sensitive"]), rows)


def _served_by(chain: Chain, rows: PastState | None) -> PastState | None:
    """The rows of a chain that may have taken the place of another: every context is one state then, for any chain."""
    return rows if rows is None or rows.chain is chain else replace(rows, chain=chain)

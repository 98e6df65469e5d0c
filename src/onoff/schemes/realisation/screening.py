"""The contexts that need a flow: those of which no scaling shows that the law is realisable (`sinkhorn`)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from onoff.extras import has
from onoff.schemes.law import Law
from onoff.schemes.realisation import sinkhorn
from onoff.types import Floats, Mask

COMPILED_FROM = 100  # sources from which compiled code pays for its loading, half a second


class Screen(Protocol):
    """Certifies rows for one law, with some slack on the full set."""

    def start(self, row: Floats) -> Floats | None:
        """What scales a row, for rows near it to begin with; None if it is not certified."""

    def passes(self, rows: Floats, start: Floats | None = None) -> Mask:
        """Which rows are certified."""


def screen_of(law: Law, slack: float) -> Screen:
    """The quickest screen at hand. Which one it is decides nothing but the time: what it leaves gets a flow."""
    if law.member.shape[1] >= COMPILED_FROM and has("fast"):
        from onoff.schemes.realisation import lanes

        return lanes.Screen(law, slack)
    return sinkhorn.Screen(law, slack)


def unsure(screen: Screen, group: Floats) -> NDArray[np.intp]:
    """Which rows of a group are not certified. They are near each other, so all begin at their mean."""
    return np.flatnonzero(~screen.passes(group, screen.start(group.mean(axis=0))))

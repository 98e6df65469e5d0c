"""Whether the law of a table can be drawn from in every context: checked in all of them, as `draw` will use it.

    in every possible context u at the lag of the plan, of the D - n flowing units at most 2n are left over,
    and no set but the full one misses all possible requests of a context

Then no draw at this lag or a larger one can fail, whatever was asked for. A row at a larger lag mixes rows at this one,
which leaves no more of them over. Rounding it leaves at most n more, which is what `TablePlan` accepts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onoff.errors import PlanError
from onoff.schemes.law import Law
from onoff.schemes.realisation.realise import SCREEN_FROM, misses_a_context
from onoff.schemes.realisation.screening import screen_of, unsure
from onoff.types import Floats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onoff.plans.table import TablePlan


def check(plan: TablePlan) -> None:
    """`PlanError` names a context in which the law is not realisable; returns if there is none."""
    posterior = plan.posterior
    member = plan.law.member[:-1]
    missing = np.flatnonzero(misses_a_context(posterior, member)).tolist()
    if missing:
        raise PlanError(f"the set {plan.sets[missing[0]]} holds no possible request in some context")
    for following, rows in _uncertain(plan):
        for row in rows:
            left = plan.left_over(row)
            if left > 2 * plan.n:
                raise PlanError(
                    f"the law of this plan is not realisable before {plan.chain.names[following]!r}: {left} of "
                    f"{plan.denominator} units are left over; make the plan anew"
                )


def _uncertain(plan: TablePlan) -> Iterator[tuple[int, Floats]]:
    """The rows before each `next` that need a flow: those that no scaling certifies with the help of the full set."""
    posterior = plan.posterior
    nexts = [following for following in range(plan.n) if len(posterior.group(following))]
    slack = (plan.masses[-1] - plan.n) / (plan.denominator - plan.n)
    if plan.n <= SCREEN_FROM or not 0 < slack < 1:
        yield from ((following, posterior.group(following)) for following in nexts)
        return
    screen = screen_of(Law(plan.law.member[:-1], plan.law.mass[:-1]), slack)
    for following in nexts:
        rows = posterior.group(following)
        yield following, rows[unsure(screen, rows)]

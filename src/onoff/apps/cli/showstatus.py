"""How a client stands, for people: its promise, what the next request costs, and what it has cost so far."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.apps.cli.output import amount, counted, percent, print_table, size, unit
from onoff.apps.status import BOUND_LIMIT
from onoff.foreign import plain
from onoff.model.bounds import outer_bound

if TYPE_CHECKING:
    from onoff.client.standing import Standing
    from onoff.client.stored import Totals
    from onoff.client.traffic import Traffic
    from onoff.logs.following import Following
    from onoff.model.chain import Chain


def print_status(found: Standing, following: Following | None = None, journal: Path | None = None) -> None:
    """Print how a client stands, and at the end whether its requests follow the chain; at the top, too, if they do not.

    `journal` is named in what there is to do, if it is not the usual one.
    """
    if following is not None and following.refuted:
        print("WARNING: the requests of this journal DO NOT FOLLOW its chain. All that is promised is relative to it.")
        print("A server may learn more than is said below: see the last line, and `onoff check`.")
    state, names = found.journal.state, found.chain.names
    print_promise(found.journal.promise, [names[source] for source in found.journal.sensitive], found.chain.n)
    print(f"steps finished: {state.step}")
    after = state.answered  # the next request is made in this state
    if state.pending is not None:
        held = counted(len(state.pending.query), "source")
        print(f"PENDING: {names[state.pending.request]!r} was asked for, in a set of {held}, and is not answered yet")
        resume = "onoff resume" if journal is None else f"onoff resume --journal {shlex.quote(str(journal))}"
        print(f"`{resume}` sends the same set again. What follows counts it as answered, except the totals")
    if after.last is None:
        left = counted(after.unsettled + 1, "request")
        print(f"the first requests of a journal ask for everything, whatever is said: {left} to go")
    else:
        print(f"steps since privacy was last ON: {after.lag}")
    if after.announced is not None:
        print(f"announced: the next request must be {names[after.announced]!r}")
    _print_next_cost(found, after.lag + 1)
    print(f"rounding so far: {state.rounding:.2e} (total variation: 0 is exactly private, and 1 would tell everything)")
    print_totals(found.journal.totals, found.chain, found.lengths, found.since, found.journal.promise)
    if found.journal.traffic is not None:
        print_traffic(found.journal.traffic)
    if following is not None:
        print(following.words())


def _print_next_cost(found: Standing, lag: int) -> None:
    """Print what the next request costs, ON and OFF, and the least that any scheme would cost."""
    chain, plan, step, lengths = found.chain, found.plan, found.step, found.lengths
    if plan is not None:
        about = "about " * plan.estimated
        if plan.estimated and lengths is None:
            off = f"about {plan.cost:.3g} ({plan.scheme})"
        else:
            off = f"{about}{amount(plan.cost, lengths)} ({plan.scheme}, lag {plan.lag})"
        print(f"cost of the next request in {unit(lengths)}: ON {_everything(chain, lengths):,g}, OFF {off}")
        if chain.n <= BOUND_LIMIT:
            above = f"the plan is {about}{percent(plan.excess_at(lag))} above that"
            least = outer_bound(chain.posterior(lag), lengths)
            print(f"no scheme needs less than {amount(least, lengths)} on average at lag {lag}: {above}")
    if step is not None:
        off = f"OFF {step.cost_in(lengths):.3f}"
        print(f"cost of the next request in {unit(lengths)}: ON {_everything(chain, lengths):g}, {off}")
        if step.weights == lengths:  # else the bound counts chances of changes, too
            print(f"nothing that keeps this promise costs less than {step.lower_bound:.3f} at that step")


def print_traffic(traffic: Traffic) -> None:
    """Print the bytes that were downloaded, and about how many other ways of reading would have downloaded."""
    rows = [
        ("downloaded", traffic.downloaded),
        ("of which changed", traffic.changed),
        ("about: asking openly for what was wanted, if changed", traffic.openly),
        ("about: mirroring everything, changed only", traffic.mirrored),
        ("about: downloading everything", traffic.everything),
    ]
    print_table("bytes", ("", "in all"), [(name, f"{amount:,.0f}") for name, amount in rows])


def print_promise(promise: str, sensitive: Sequence[str], n: int) -> None:
    """Print which promise is kept, in a sentence, and for which sensitive sources."""
    from onoff.client.promises import PROMISES, SENSITIVE

    print(f"promise {promise}: {PROMISES[promise]}")
    if sensitive:
        print(f"sensitive sources: {', '.join(plain(name, 60) for name in sensitive)}: {SENSITIVE}")
    if len(sensitive) == n:
        print("all sources are sensitive: every request asks for everything")


def print_totals(
    totals: Totals, chain: Chain, lengths: Sequence[float] | None, since: int, promise: str = "both"
) -> None:
    """What a journal's finished steps, from step `since` on, asked for, against the alternatives for the same lags."""
    steps = totals.steps
    rows = [("expected of the plans that were used", totals.cost), ("asked for", totals.downloaded)]
    if promise == "both":
        least = sum(count * outer_bound(chain.posterior(lag), lengths) for lag, count in totals.lags.items())
        rows.append(("outer bound: no scheme needs less on average", least))
    else:
        rows[0] = ("expected of the laws that sets were drawn from", totals.cost)
    which = " since --lengths changed" if since else ""
    title = f"{counted(steps, 'request')}{which}, privacy ON for {totals.private}: {unit(lengths)} asked for"
    everything = steps * _everything(chain, lengths)
    decimals = 1 if everything < 10_000 else 0
    shown = [
        (name, f"{number:,.{decimals}f}", amount(number / max(1, steps), lengths))
        for name, number in (("downloading everything", everything), *rows)
    ]
    print_table(title, ("", "in all", "per request"), shown)
    print(f"{size(totals.bytes)} received, {counted(totals.attempts - steps, 'retry', 'retries')}")


def _everything(chain: Chain, lengths: Sequence[float] | None) -> float:
    """What the full set costs."""
    return chain.n if lengths is None else math.fsum(lengths)

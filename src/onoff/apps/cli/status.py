"""`onoff status`: the client's promise, what the next request costs, and what it has cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.errors import command_for
from onoff.apps.cli.options import READ, AsJson, Plans
from onoff.apps.cli.output import counted, percent, print_json, print_table, size
from onoff.errors import JournalError
from onoff.foreign import plain

if TYPE_CHECKING:
    from onoff.client.journalfile import Totals
    from onoff.client.status import Status, Traffic
    from onoff.logs.follow import Following
    from onoff.model.chain import Chain

BOUND_LIMIT = 300  # sources: beyond it the outer bound takes longer than a status may


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=READ, epilog="Example: onoff status --journal reader.journal")(status)


def status(
    journal: Annotated[Path | None, typer.Option("--journal", metavar="FILE", help="The client's state.")] = None,
    plans: Plans = None,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="For a journal that was made in Python.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the promise, the lag, what is pending, what the next request costs, and what rounding has added up to."""
    from onoff.client.connect import default_journal
    from onoff.client.journalfile import snapshot
    from onoff.client.learning import Learned
    from onoff.client.status import status as status_of
    from onoff.logs.follow import follows
    from onoff.logs.journals import read_journal
    from onoff.logs.requests import of_journal

    path = journal or default_journal()
    if journal is None:
        _name_journals_of_proxies(path)
    if chain is None and snapshot(path).memory.learning is not None:
        kept = read_journal(path)
        learned = Learned.of(len(kept.names or ()), kept.private)
        if as_json:
            print_json(learned)
        else:
            print(learned.words(path))
        return
    found = status_of(path, chain, plans)
    following = follows(found.chain, of_journal(path, found.chain).indices)
    if as_json:
        print_json(status_data(found, following))
    else:
        print_status(found, following, journal)


def _name_journals_of_proxies(default: Path) -> None:
    """Raise an error that names the journals of `onoff proxy` beside the default one, if only they are there."""
    found = [file for file in map(default.with_name, ("proxy", "learning")) if file.exists()]
    if found and not default.exists():
        commands = " or ".join(command_for("onoff status", file) for file in found)
        raise JournalError(f"{default}: there is no journal; the first request makes one. Of the proxy: {commands}")


def status_data(found: Status, following: Following) -> dict[str, object]:
    """What `onoff status --json` prints.

    `lag` counts steps since privacy was last ON, None before a request has counted as ON; `full` requests more ask for
    everything, whatever is said. `next` is what the next request costs in messages, ON and OFF, and the least that any
    law needs. `refuted` says that the requests do not follow the chain, `following` why.
    """
    state, names = found.journal.state, found.chain.names
    after, pending = state.answered, state.pending
    started = after.last is not None or found.law is not None
    off = least = None
    if found.plan is not None:
        off, least = found.plan.cost, _least(found.chain, after.lag + 1)
    elif found.law is not None:
        off, least = found.law.cost, found.law.lower_bound
    query = () if pending is None else pending.query
    return {
        "promise": found.journal.promise,
        "sensitive": [names[source] for source in found.journal.sensitive],
        "steps": state.step,
        "lag": after.lag if started else None,
        "full": 0 if started else after.unsettled + 1,
        "pending": None if pending is None else {"source": names[pending.request], "query": [names[x] for x in query]},
        "announced": None if after.announced is None else names[after.announced],
        "next": {"on": float(found.chain.n), "off": off, "lower_bound": least},
        "rounding": state.rounding,
        "totals": found.journal.totals,
        "refuted": following.refuted,
        "following": following,
    }


def _least(chain: Chain, lag: int) -> float | None:
    """The messages that every scheme needs at a lag; None if that takes too long to find out."""
    from onoff.model.bounds import outer_bound

    return outer_bound(chain.posterior(lag)) if chain.n <= BOUND_LIMIT else None


def print_status(found: Status, following: Following | None = None, journal: Path | None = None) -> None:
    """Print how a client stands, and at the end whether its requests follow the chain; at the top, too, if they do not.

    `journal` is named in what there is to do, if it is not the usual one.
    """
    from onoff.client.connect import default_journal

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
        resume = command_for("onoff resume", journal or default_journal())
        print(f"{resume} sends the same set again. What follows counts it as answered, except the totals")
    if after.last is None:
        left = counted(after.unsettled + 1, "request")
        print(f"the first requests of a journal ask for everything, whatever is said: {left} to go")
    else:
        print(f"steps since privacy was last ON: {after.lag}")
    if after.announced is not None:
        print(f"announced: the next request must be {names[after.announced]!r}")
    _print_next_cost(found, after.lag + 1)
    print(f"rounding so far: {state.rounding:.2e} (total variation: 0 is exactly private, and 1 would tell everything)")
    print_totals(found.journal.totals, found.chain, found.journal.promise)
    if found.journal.traffic is not None:
        print_traffic(found.journal.traffic)
    if following is not None:
        print(following.words())


def _print_next_cost(found: Status, lag: int) -> None:
    """Print what the next request costs, ON and OFF, and the least that any scheme would cost."""
    plan, law, everything = found.plan, found.law, found.chain.n
    if plan is not None:
        about = "about " * plan.estimated
        off = (
            f"about {plan.cost:.3g} ({plan.scheme})"
            if plan.estimated
            else f"{plan.cost:.3f} ({plan.scheme}, lag {plan.lag})"
        )
        print(f"cost of the next request in messages: ON {everything}, OFF {off}")
        least = _least(found.chain, lag)
        if least is not None:
            above = f"the plan is {about}{percent(plan.excess_at(lag))} above that"
            print(f"no scheme needs less than {least:.3f} on average at lag {lag}: {above}")
    if law is not None:
        print(f"cost of the next request in messages: ON {everything}, OFF {law.cost:.3f}")
        print(f"nothing that keeps this promise costs less than {law.lower_bound:.3f} at that step")


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


def print_totals(totals: Totals, chain: Chain, promise: str = "both") -> None:
    """Print what a journal's finished steps asked for, against the alternatives for the same lags."""
    from onoff.model.bounds import outer_bound

    steps = totals.steps
    which = "plans that were used" if promise == "both" else "laws that sets were drawn from"
    rows = [
        ("downloading everything", float(steps * chain.n)),
        (f"expected of the {which}", totals.cost),
        ("asked for", float(totals.downloaded)),
    ]
    if promise == "both":
        least = sum(count * outer_bound(chain.posterior(lag)) for lag, count in totals.lags.items())
        rows.append(("outer bound: no scheme needs less on average", least))
    decimals = 1 if rows[0][1] < 10_000 else 0
    shown = [(name, f"{number:,.{decimals}f}", f"{number / max(1, steps):.3f}") for name, number in rows]
    title = f"{counted(steps, 'request')}, privacy ON for {totals.private}: messages asked for"
    print_table(title, ("", "in all", "per request"), shown)
    print(f"{size(totals.bytes)} received, {counted(totals.attempts - steps, 'retry', 'retries')}")

"""`onoff status`: the client's promise, what the next request costs, and what it has cost so far."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import READ, AsJson, Plans
from onoff.apps.cli.output import amount, command_for, percent, print_json, print_table, size
from onoff.text import plain

if TYPE_CHECKING:
    from onoff.client.status import Status, Totals
    from onoff.logs.follow import Following
    from onoff.model.chain import Chain

BOUND_LIMIT = 300  # sources: beyond it the outer bound takes longer than a status may


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=READ, epilog="Example: onoff status --journal reader.journal")(status)


def status(
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal", metavar="FILE", help="The client's state; by default of `onoff get`, or else of the proxy."
        ),
    ] = None,
    plans: Plans = None,
    chain: Annotated[Path | None, typer.Option(metavar="FILE", help="For a journal that was made in Python.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the promise, the lag, what is pending, what the next request costs, and what rounding has added up to."""
    from onoff.apps.setup import Setup, default_directory, has_setup
    from onoff.client.connect import default_journal
    from onoff.client.status import status as status_of
    from onoff.logs.follow import follows, read_journal_requests

    path = journal or default_journal()
    if journal is None and not path.exists() and has_setup(default_directory()):
        journal = path = Setup.load(default_directory()).journal
    found = status_of(path, chain, plans)
    following = None
    if found.stated is not None and (found.habits is None or found.journal.sensitive):  # where no fuse tests the chain
        following = follows(found.stated, read_journal_requests(path, found.stated).indices)
    if as_json:
        print_json(status_data(found, following))
    else:
        print_status(found, following, journal)


def status_data(found: Status, following: Following | None) -> dict[str, object]:
    """Data of `onoff status --json`.

    `lag` counts steps since privacy was last ON, None before a request has counted as ON; the next `full` requests
    ask for everything, in any case. `private_until` is the end of a private window, in seconds since 1970. `next`
    is what the next request costs in messages, ON and OFF, and the least that any law needs. `keep` says for how
    many steps or days requests are kept, None for ever. `habits` says how the chain came about
    (`onoff.client.habits.HabitsStatus`). `refuted` says that the requests do not follow the chain, if it has no
    fuse; `following` says why.
    """
    state, names = found.journal.state, found.chain.names
    after, pending = state.answered, state.pending
    learns = found.habits is not None and found.habits.stage in ("learning", "all")
    started = not (after.owed or learns)
    law = found.law or found.plan
    asked = None if pending is None else [names[x] for x in pending.query]
    return {
        "promise": found.journal.promise,
        "sensitive": [names[source] for source in found.journal.sensitive],
        "steps": state.step,
        "lag": after.lag if started else None,
        "full": after.owed,
        "private_until": found.private_until,
        "pending": None if pending is None else {"source": names[pending.request], "query": asked},
        "announced": None if after.announced is None else names[after.announced],
        "next": {"on": float(found.chain.n), "off": law and law.cost, "lower_bound": _least(found)},
        "rounding": state.rounding,
        "totals": found.journal.totals,
        "keep": found.journal.memory.keep,
        "habits": found.habits,
        "refuted": following is not None and following.refuted,
        "following": following,
    }


def _least(found: Status) -> float | None:
    """Compute the messages that the next OFF request needs by any law; None if that takes too long."""
    from onoff.model.bounds import outer_bound

    if found.law is not None:
        return found.law.lower_bound
    if found.plan is None or found.chain.n > BOUND_LIMIT:
        return None
    return outer_bound(found.chain.posterior(found.journal.state.answered.lag + 1))


def print_status(found: Status, following: Following | None = None, journal: Path | None = None) -> None:
    """Print a client's state, and at the end whether its requests follow the chain; at the top, too, if not.

    `journal` is named in the advice, if it is not the usual one.
    """
    from onoff.client.connect import default_journal
    from onoff.client.status import window_words

    if following is not None and following.refuted:
        print("WARNING: the requests of this journal DO NOT FOLLOW its chain. All that is promised is relative to it.")
        print("A server may learn more than is said below: see the last line, and `onoff check`.")
    state, names = found.journal.state, found.chain.names
    print_promise(found.journal.promise, [names[source] for source in found.journal.sensitive], found.chain.n)
    if found.habits is not None:
        print(f"habits: {found.habits.words(journal or default_journal())}")
    if found.private_until is not None:
        print(window_words(found.private_until))
    print(f"steps finished: {state.step}")
    after = state.answered  # the next request is made in this state
    if state.pending is not None:
        held = amount(len(state.pending.query), "source")
        print(f"PENDING: {names[state.pending.request]!r} was asked for, in a set of {held}, and is not answered yet")
        resume = command_for("onoff resume", journal or default_journal())
        print(f"{resume} sends the same set again. What follows counts it as answered, except the totals")
    if found.habits is not None and found.habits.stage in ("learning", "all"):
        pass
    elif after.owed:
        print(f"the next requests that ask for everything, whatever you say: {after.owed}")
    else:
        print(f"steps since privacy was last ON: {after.lag}")
    if after.announced is not None:
        print(f"announced: the next request must be {names[after.announced]!r}")
    if found.journal.failing:
        print("a source has failed: for five minutes after that every request asks for everything")
    _print_next_cost(found)
    print(f"rounding so far: {state.rounding:.2e} (total variation: 0 is exactly private, and 1 would tell everything)")
    print_totals(found.journal.totals, found.chain, found.journal.promise)
    keep = found.journal.memory.keep
    limit = "steps" if keep is None or not keep.endswith("d") else "days"
    kept = "ever" if keep is None else f"{keep.removesuffix('d')} {limit}; older ones are erased"
    print(f"requests and random numbers are kept for {kept}")
    if following is not None:
        print(following.words())


def _print_next_cost(found: Status) -> None:
    """Print what the next request costs, ON and OFF, and the least that any scheme would cost."""
    from onoff.plans.plan import excess

    plan, law, lag, least = found.plan, found.law, found.journal.state.answered.lag + 1, _least(found)
    begin = f"cost of the next request in messages: ON {found.chain.n}, OFF"
    if plan is not None:
        about = "about " * (plan.kind == "race")
        off = f"{plan.cost:.3g} ({plan.scheme})" if about else f"{plan.cost:.3f} ({plan.scheme}, lag {plan.lag})"
        print(f"{begin} {about}{off}")
        if least is not None:
            above = f"the plan is {about}{percent(excess(plan.cost, least))} above that"
            print(f"no scheme needs less than {least:.3f} on average at lag {lag}: {above}")
    if law is not None:
        print(f"{begin} {law.cost:.3f}")
        print(f"nothing that keeps this promise costs less than {least:.3f} at that step")


def print_promise(promise: str, sensitive: Sequence[str], n: int) -> None:
    """Print which promise is kept, in a sentence, and for which sensitive sources."""
    from onoff.client.promises import PROMISES, SENSITIVE

    print(f"promise {promise}: {PROMISES[promise]}")
    if sensitive:
        print(f"sensitive sources: {', '.join(plain(name, 60) for name in sensitive)}: {SENSITIVE}")
    if len(sensitive) == n:
        print("all sources are sensitive: every request asks for everything")


def print_totals(totals: Totals, chain: Chain, promise: str = "both") -> None:
    """Print what a journal's finished steps asked for, beside alternatives for the same lags."""
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
    title = f"{amount(steps, 'request')}, privacy ON for {totals.private}: messages asked for"
    print_table(title, ("", "in all", "per request"), shown)
    print(f"{size(totals.bytes)} received, {amount(totals.attempts - steps, 'retry', 'retries')}")

"""The report of a fit on the screen and as a picture."""

from __future__ import annotations

import shlex
from math import ceil
from pathlib import Path

from onoff.apps.cli.output import counted, print_table
from onoff.logs.fit import Report
from onoff.model.misfit import is_too_small, requests_until_refit

WIDTH = 40
NO_BOUND = "has no proved bound: too few transitions"


def print_fit(report: Report, chain: Path) -> None:
    """Print what was counted, then what the chain, in the file `chain`, is worth, then what privacy costs."""
    _print_counts(report)
    _print_worth(report)
    _print_misfit(report)
    print()
    print(f"least cost of a request (outer bound, promise both), of {report.n} messages, by steps since ON")
    for row in report.costs:
        bar = "█" * max(1, round(WIDTH * row.outer / report.n))
        around = "" if row.low is None else f"  {row.low:.3f} to {row.high:.3f}"
        print(f"{row.lag:>5} {bar:<{WIDTH}}│ {row.outer:.3f}{around}")
    print(report.verdict)
    if is_too_small(report.transitions, report.n):
        return
    rates = f"`onoff costs {shlex.quote(str(chain))} --promise past`"
    print(f"The promise past usually costs less: {rates} says how much.")
    if report.users == 1:
        requests = requests_until_refit(report.transitions, report.n)
        print(
            f"A chain of so many transitions lasts for about {requests:,} requests: after that "
            "`onoff check` may call it wrong although habits are the same. Then fit again, to these requests too."
        )
    if any(max(row.both, row.past) >= 1 for row in report.misfit):
        print(
            "That is about cost. As for privacy, this log leaves the habits uncertain: OFF steps are private relative "
            "to this chain, and how far the true one may be from it is not proved. More transitions help."
        )


def _print_counts(report: Report) -> None:
    lines = (
        ("rows", report.rows, True),
        ("rows without a user", report.missing_user, False),
        ("rows without a time that can be read", report.missing_time, False),
        ("rows left out for that", report.dropped_rows, False),
        ("rows that name no source, or one that is left out", report.missing_source, False),
        ("rows that end a sequence: theirs is no source of the chain", report.breaks, False),
        ("events", report.events, True),
        ("users", report.users, True),
        ("sequences", report.sequences, True),
        ("transitions", report.transitions, True),
        ("different sources", report.sources, True),
        ("sources of training users that became one", report.merged_sources, False),
        ("their events", report.merged_events, False),
        ("sources of held-out users only", report.unseen_sources, False),
    )
    rows = [(name, f"{count:,}") for name, count, always in lines if always or count]
    print_table("the log", ("", "number"), rows)


def _print_worth(report: Report) -> None:
    print(
        f"chain: {report.n} sources from {report.training_transitions:,} transitions of "
        f"{counted(report.training_users, 'training user')}, smoothing {report.smoothing:g}"
    )
    print(f"transitions never seen in training: {report.unseen_cells:.2%} of the {report.n}² possible ones")
    if report.dead_ends:
        print(f"never followed by anything, so a new sequence starts after them: {', '.join(report.dead_ends)}")
    tested = report.held_out
    if tested is None:
        print("no held-out transitions: how well the chain predicts is not known")
    else:
        print(f"held-out users: {tested.transitions:,} transitions, {tested.unseen:.3%} of them never seen in training")
        if tested.bits is None:
            print("the chain calls some of them impossible: their likelihood is 0; use --smoothing")
        else:
            print(
                f"likelihood: {tested.bits:.3f} bits per transition ({tested.marginal_bits:.3f} if the last request "
                "told nothing)"
            )
    gain = report.second_order_gain
    if gain is None:
        print("distance from first order: not known: it takes many users (--held-out) and at most 200 sources (--top)")
    else:
        bits, low, high = (round(value, 4) + 0.0 for value in (gain.estimate, gain.low, gain.high))  # no minus zero
        print(
            f"distance from first order: two requests back tell {bits:.4f} bits per transition more than one "
            f"({low:.4f} to {high:.4f})"
        )


def _print_misfit(report: Report) -> None:
    if report.misfit:
        print("if the true chain is another one in the 95 % region of this log (estimates: on average over requests),")
        print("(total variation: 0 is private, 1 tells everything)")
    for row in report.misfit:
        both, past = _within(row.both, row.both_estimate), _within(row.past, row.past_estimate)
        print(f"  promise both: an OFF step at lag {row.lag} {both}")
        print(f"  promise past: OFF step {row.lag} after ON {past}")


def _within(bound: float, estimate: float | None) -> str:
    """Say how far from private; a bound is never rounded down."""
    proved = f"is within {ceil(1000 * bound) / 1000:.3f} of private" if bound < 1 else NO_BOUND
    return proved if estimate is None else f"{proved}; estimated: within {estimate:.3f}"

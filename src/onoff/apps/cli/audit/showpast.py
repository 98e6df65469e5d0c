"""What servers learn of real people from the everyday mode, as a table and as a dictionary."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from onoff.apps.cli.audit.real import cell, interval
from onoff.apps.cli.output import print_table

if TYPE_CHECKING:
    from onoff.audit.real import RealPast, Split


def print_past(found: RealPast, parts: Split) -> None:
    """What was told about hidden requests, about sensitive ones, how often guesses were right, and the cost."""
    first = found.leaks[0]
    names = ", ".join(parts.chain.names[x] for x in found.sensitive)
    what = f"{first.hidden} requests" if names else f"{first.hidden} private requests"
    print(f"{first.people} people, {what}; the server learned from {parts.training} others")
    whose = [(leak.client, leak.server) for leak in found.leaks]
    asked = ("client", "server's model")
    bits = [(leak.before, leak.after, leak.moved) for leak in found.leaks]
    print_table(
        "bits about " + ("which sensitive source was asked for, or none" if names else "a private request"),
        (*asked, "before it (not promised)", "at and after it", "belief moved at and after it"),
        [(*who, *map(cell, row)) for who, row in zip(whose, bits, strict=True)],
    )
    marked = [(leak.sensitive_before, leak.sensitive_after, leak.ever) for leak in found.leaks if leak.sensitive]
    if marked:
        print_table(
            f"bits about the {first.sensitive} requests for {names}; whether a person ever made one, bits per person",
            (*asked, "before it (not promised)", "at and after it", "ever (not promised)"),
            [(*who, *(cell(one) for one in row if one)) for who, row in zip(whose, marked, strict=True)],
        )
    print_table(
        "how often the best guess is right, and what it costs",
        (*asked, "by habits alone", "before it", "after all queries", "messages per request"),
        [
            (
                *who,
                *(cell(one, 100, 1, " %") for one in (leak.right_prior, leak.right_before, leak.right)),
                cell(leak.messages, 1, 2),
            )
            for who, leak in zip(whose, found.leaks, strict=True)
        ],
    )
    for count, thing in ((parts.unknown, "a source"), (parts.impossible, "a step")):
        if count:
            print(f"{count} sequences end before {thing} that the chain does not have.")
    words = [f"{interval(leak.after)} ({leak.client})" for leak in found.leaks if leak.server == first.server]
    print(
        "A server that knows habits of the second order learns so many bits about a hidden request, at it and after "
        f"it: {', '.join(words)}. (In brackets: 95 % intervals.)"
    )


def past_as_dict(found: RealPast, parts: Split) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "promise": "past",
        "sources": parts.chain.n,
        "sensitive": [parts.chain.names[x] for x in found.sensitive],
        "training": parts.training,
        "cut_unknown": parts.unknown,
        "cut_impossible": parts.impossible,
        "leaks": [asdict(leak) for leak in found.leaks],
    }

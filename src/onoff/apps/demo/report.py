"""The demonstration in words: 80 columns of plain letters, so that any terminal can show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onoff.apps.demo.compare import Row
from onoff.apps.demo.reader import SENSITIVE
from onoff.apps.demo.run import CHANGES, Demonstration

NONE = 0.0005  # bits below it are shown as 0
EVERYTHING, MIRROR = "downloads everything", "mirrors all that changed"


def introduce(steps: int) -> Iterator[str]:
    """What is about to happen."""
    yield f"One reader, eight news channels, {steps} requests. The server is not trusted: it"
    yield "knows the reader's habits, keeps every query, and computes without limit. At"
    yield f"each step {_share(CHANGES)} of the channels have news. Clients download what has changed."


def narrate(result: Demonstration) -> Iterator[str]:
    """What happened, line by line."""
    past = next(row for row in result.switched if row.promise == "past")
    yield f"1. PRIVATE REQUESTS. {result.private} of {result.steps} are made ON. What does the server learn?"
    yield ""
    yield from _table(result.switched)
    yield ""
    yield "   before: from queries before the request. in all: from all queries. + after:"
    yield "   the bits that its own query and all later ones add to those before."
    yield "   past: no query at or after a private request changes what is believed of it."
    yield f"   What was asked openly before already tells: the server guesses {_share(past.guessed_before)}, by"
    yield f"   habits alone {_share(result.by_habits)}. past promises only that nothing more is learned."
    yield "   both: hides that, too. No query tells anything. For that the reader announces"
    yield "   each request."
    yield ""
    yield f"2. SENSITIVE SOURCES. {result.sensitive} of {result.steps} requests are for {' or '.join(SENSITIVE)}."
    yield "   Nothing is switched. Does the server notice them, and which it was?"
    yield ""
    yield from _table(result.marked)
    yield ""
    yield "   past, with sensitive sources: no query tells which was read, nor if any was."
    yield ""
    killed = result.killed
    left = "a query was pending" if killed.pending else "no query was pending"
    yield f"3. KILL -9. A client was killed after {killed.at} of {killed.steps} steps; {left}."
    yield f"   Started again, it went on: {killed.sets} set for each step in the log, and {killed.delivered} of"
    yield f"   {killed.steps} messages arrived."
    yield ""
    yield from _end(result)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "                               per request     guessed right     bits learned"
    yield "   client (promise)         messages   bytes   before  in all    before + after"
    for row in rows:
        name = f"{row.client} ({row.promise})" if row.promise else row.client
        guesses = f"{_share(row.guessed_before):>7}  {_share(row.guessed):>6}"
        yield f"   {name:25}{row.messages:7.1f}{row.bytes:9,.0f}  {guesses}  {_bits(row.bits_before)}{_bits(row.bits)}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _bits(bits: float) -> str:
    return f"{bits:8.2f}" if bits >= NONE else f"{'0':>8}"


def _end(result: Demonstration) -> Iterator[str]:
    """What was seen, and what to try next; or what is wrong."""
    if result.findings:
        yield from (f"This is a bug: {finding}" for finding in result.findings)
        return
    naive = next(row for row in result.switched if row.client == "asks openly while OFF")
    past = next(row for row in result.switched if row.promise == "past")
    everything, mirror = (next(row for row in result.switched if row.client == name) for name in (EVERYTHING, MIRROR))
    yield f"You saw: asking openly while OFF gives away {_share(naive.guessed)} of the private requests."
    yield "With onoff no query at or after one told anything. With past it"
    yield f"downloaded {_share(1 - past.bytes / everything.bytes)} fewer bytes than downloading everything, and"
    yield f"{_share(1 - past.bytes / mirror.bytes)} fewer than mirroring all that changed."
    yield "Try next: onoff page, or what a day with your habits costs:"
    yield "    onoff fit LOG -o habits.json && onoff costs habits.json --day"

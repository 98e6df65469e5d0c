"""The demonstration in words: 80 columns of plain letters, so that any terminal can show it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onoff.apps.demo.comparing import Row
from onoff.apps.demo.habits import SENSITIVE
from onoff.apps.demo.running import CHANGES, Demonstration

SURE = 0.0005  # bits that are shown as none


def opening(steps: int) -> Iterator[str]:
    """What is about to happen."""
    yield f"A reader of eight news channels makes {steps} requests. The server is not trusted:"
    yield "it knows the reader's habits, keeps every query, and computes without limit."
    yield f"At every step {CHANGES:.0%} of the channels have news, and only those are downloaded."


def story(result: Demonstration) -> Iterator[str]:
    """What happened, line by line."""
    yield f"1. Some requests are private: {result.private} of {result.steps} are made ON, the others OFF"
    yield ""
    yield from _table(result.switched)
    yield ""
    yield f"   Habits alone guess {result.by_chance:.0%}. Random decoys do not add up: what fits all sets is soon"
    yield "   found. onoff draws sets that tell nothing about any private request:"
    yield '   "past"  none of the queries at or after it. What was asked before it may.'
    yield '   "both"  none at all. The reader announces each next request for that.'
    yield ""
    yield f"2. Some channels are sensitive ({', '.join(SENSITIVE)}): {result.sensitive} of {result.steps} requests"
    yield "   Nothing is switched. Guessed right is a request for one of them, and which."
    yield ""
    yield from _table(result.marked)
    yield ""
    yield '   "past" hides also whether anything sensitive was read.'
    yield ""
    yield "3. kill -9"
    yield ""
    killed = result.killed
    left = "a query was pending" if killed.pending else "no query was pending"
    yield f"   A client was killed at step {killed.at} of {killed.steps}; {left}. Started again,"
    arrived = f"{killed.delivered} of {killed.steps} messages arrived"
    yield f"   it went on: {killed.sets} set per step in the server's log, {arrived}."
    yield ""
    yield from _end(result)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    yield "                              per request      guessed right     bits learned"
    yield "   client                    msgs     bytes    before   after    before   after"
    for row in rows:
        name = f"{row.client} ({row.promise})" if row.promise else row.client
        guesses = f"{row.guessed_before:8.0%}{row.guessed:8.0%}"
        yield f"   {name:24}{row.messages:6.1f}{row.bytes:10,.0f}  {guesses}  {_bits(row.bits_before)}{_bits(row.bits)}"


def _bits(bits: float) -> str:
    return f"{0 if bits < SURE else bits:8.2f}"


def _end(result: Demonstration) -> Iterator[str]:
    """Three lines: what was seen, and what to try next."""
    if not result.clean:
        yield from (f"This is a bug: {finding}" for finding in result.findings)
        yield f"This is a bug: {result.delivered} of {result.wanted} messages arrived" if not result.findings else ""
        return
    naive = next(row for row in result.switched if row.client == "asks openly while OFF")
    past = next(row for row in result.switched if row.promise == "past")
    yield f"You saw: asking openly gave away {naive.guessed:.0%} of the private requests; onoff gave away nothing,"
    yield f"at {past.messages:.1f} messages a request instead of 8. Try: `onoff page` (click it yourself), `onoff"
    yield "estimate CHAIN` (what it costs you), `onoff proxy` (any feed reader), docs/tutorial.md."

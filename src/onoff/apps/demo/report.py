"""The demonstration in words: 80 columns of plain letters, so that any terminal can show it."""

from __future__ import annotations

from collections.abc import Sequence

from onoff.apps.demo.compare import Row
from onoff.apps.demo.reader import SENSITIVE
from onoff.apps.demo.run import CHANGES, Demonstration

NONE = 0.0005  # bits below it are shown as 0


def introduce(steps: int) -> str:
    """What is about to happen."""
    return f"""\
One reader, eight news channels, {steps} requests. The server is not trusted: it
knows the reader's habits, keeps every query, and computes without limit. At
each step {_share(CHANGES)} of the channels have news. Clients download what has changed.
"""


def narrate(result: Demonstration) -> str:
    """What happened; then what was seen, and what to try next, or what is wrong."""
    rows = {row.promise or row.client: row for row in result.switched}
    past, naive, killed = rows["past"], rows["asks openly while OFF"], result.killed
    everything, mirror = rows["downloads everything"], rows["mirrors all that changed"]
    left = "a" if killed.pending else "no"
    text = f"""\
1. PRIVATE REQUESTS. {result.private} of {result.steps} are made ON. What does the server learn?

{_table(result.switched)}

   before: from queries before the request. in all: from all queries. + after:
   the bits that its own query and all later ones add to those before.
   past: no query at or after a private request changes what is believed of it.
   What was asked openly before already tells: the server guesses {_share(past.guessed_before)}, by
   habits alone {_share(result.by_habits)}. past promises only that nothing more is learned.
   both: hides that, too. No query tells anything. For that the reader announces
   each request.

2. SENSITIVE SOURCES. {result.sensitive} of {result.steps} requests are for {" or ".join(SENSITIVE)}.
   Nothing is switched. Does the server notice them, and which it was?

{_table(result.marked)}

   past, with sensitive sources: no query tells which was read, nor if any was.

3. KILL -9. A client was killed after {killed.at} of {killed.steps} steps; {left} query was pending.
   Started again, it went on: {killed.sets} set for each step in the log, and {killed.delivered} of
   {killed.steps} messages arrived.

"""
    if result.findings:
        return text + "\n".join(f"This is a bug: {finding}" for finding in result.findings)
    return f"""{text}\
You saw: asking openly while OFF gives away {_share(naive.guessed)} of the private requests.
With onoff no query at or after one told anything. With past it
downloaded {_share(1 - past.bytes / everything.bytes)} fewer bytes than downloading everything, and
{_share(1 - past.bytes / mirror.bytes)} fewer than mirroring all that changed.
Try next: onoff page, or what a day with your habits costs:
    onoff fit LOG -o habits.json && onoff costs habits.json --day"""


def _table(rows: Sequence[Row]) -> str:
    lines = ["                               per request     guessed right     bits learned"]
    lines += ["   client (promise)         messages   bytes   before  in all    before + after"]
    for row in rows:
        name = f"{row.client} ({row.promise})" if row.promise else row.client
        costs = f"{row.messages:7.1f}{row.bytes:9,.0f}  {_share(row.guessed_before):>7}  {_share(row.guessed):>6}"
        lines.append(f"   {name:25}{costs}  {_bits(row.bits_before)}{_bits(row.bits)}")
    return "\n".join(lines)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _bits(bits: float) -> str:
    return f"{bits:8.2f}" if bits >= NONE else f"{'0':>8}"

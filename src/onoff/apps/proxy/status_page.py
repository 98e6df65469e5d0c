"""The proxy's own page: one HTML document without scripts, in which every foreign word is escaped.

It is rendered from the queue and from what the journal says, which is read in a thread: public things alone, and no
request. Its style sheet is that of the demonstration's page, inside of it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection
from html import escape
from pathlib import Path
from urllib.parse import quote

from onoff.client.habits import HabitsStatus
from onoff.client.promises import PROMISES, SENSITIVE
from onoff.client.queue import RequestQueue
from onoff.client.status import Account, Totals, window_words
from onoff.text import plain

STYLE = (Path(__file__).parents[1] / "page" / "static" / "page.css").read_text(encoding="utf-8")
HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; img-src data:",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with less, browsers do not say that the form below is ours
    "cache-control": "no-store",
}


def render(queue: RequestQueue, found: Account, linked: Collection[str], token: str) -> str:
    """Write the page. `linked` sources have a path. `token` goes into the form: who sends it has seen it."""
    names, habits = queue.client.chain.names, queue.client.habits
    assert habits is not None, "a proxy keeps a promise that needs no announcement"
    sensitive = [names[number] for number in found.sensitive]
    hidden = dict.fromkeys(sensitive, " (sensitive)")
    sources = (f"<li>{_link(each) if each in linked else _safe(each)}{hidden.get(each, '')}</li>" for each in names)
    visits = "<p>Every visit to one of these is a request, and makes a step.</p>"
    parts = [
        _switch(queue, habits, token),
        _promise(found, sensitive),
        _section("left", "What the servers learned", "<ul>", *_describe_leak(found, len(names)), "</ul>"),
        _section("right", "What it costs", *_costs(queue, found)),
        _habits(queue, habits),
        _section("", "Last error", f"<p>{_safe(queue.trouble)}</p>") if queue.trouble else "",
        _section("", "Sources", visits, '<ul class="sources">', *sources, "</ul>"),
    ]
    return _document(f'<div class="panels">{"".join(parts)}</div>')


def render_link(name: str) -> str:
    """Write a page for a browser led to a source: the click on its link is the request."""
    said = f"<p>To read {_link(name)} is a request, and makes a step: click if you want it.</p>"
    return _document(_section("", "Your browser was led here", said))


def _document(inner: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>onoff proxy</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body class='proxy'><main><h1>onoff proxy</h1>{inner}</main></body></html>"
    )


def _section(kind: str, title: str, *inner: str) -> str:
    return f'<section class="panel {kind}"><h2>{title}</h2>{"".join(inner)}</section>'


def _switch(queue: RequestQueue, habits: HabitsStatus, token: str) -> str:
    now, other = ("ON", "off") if queue.private else ("OFF", "on")
    but = ", except the sensitive ones" if queue.client.journal.sensitive else ""
    effect = f"new requests are open{but}: the servers learn the open ones in part"
    if queue.private:
        effect = "new requests are private"
    if habits.stage == "all" or (habits.stage == "learning" and not queue.private):
        effect = "new requests ask for everything"
    if habits.stage in ("learning", "complete"):
        effect += ". A private request now ends the learning: stay OFF until the habits are known"
    return _section(
        f"left switched {now.lower()}",
        f"Privacy is {now}",
        f"<p>While it is {now}, {effect}.</p>",
        '<form method="post" action="/onoff/privacy">',
        f'<input type="hidden" name="token" value="{escape(token)}">',
        f'<button name="privacy" value="{other}">Switch {other.upper()}</button></form>',
        "<p>Do not switch because of what you are about to read: the servers see when you switch.</p>",
    )


def _promise(found: Account, sensitive: list[str]) -> str:
    promise = PROMISES[found.promise]
    said = f"<p>{promise[0].upper()}{escape(promise[1:])}.</p>"
    if sensitive:
        hidden = SENSITIVE.replace("the server learns", "the servers learn")
        said += f"<p>Sensitive sources ({', '.join(map(_safe, sensitive))}): {escape(hidden)}.</p>"
    return _section("right", f"Promise <small>{found.promise}</small>", said)


def _describe_leak(found: Account, n: int) -> list[str]:
    """State what the queries of all steps tell."""
    totals = found.totals
    partly = totals.steps - totals.private - totals.single
    said = ["When you asked, and for which sets."]
    if totals.private:
        said.append(f"Of {totals.private:,} requests no more than that: each asked for everything.")
    if totals.single:
        said.append(f"{totals.single:,} requests: each asked for one source alone.")
    if partly:
        size = (totals.downloaded - n * totals.private - totals.single) / partly
        said.append(f"{partly:,} requests in part: each was for one of {size:.1f} sources on average.")
    if totals.steps > totals.private:
        said.append("Your habits, as the chain has them.")
    said.append(f"By rounding, a total variation of at most {found.state.rounding:.1e} over all steps.")
    return [f"<li>{each}</li>" for each in said]


def _costs(queue: RequestQueue, found: Account) -> list[str]:
    n, pending = queue.client.chain.n, ", and a step is not finished" if found.state.pending is not None else ""
    waiting = f"<p>{queue.waiting} requests wait{pending}.</p>"
    if queue.client.private_until is not None:
        waiting += f"<p>Now {window_words(queue.client.private_until)}.</p>"
    return [f"<h3>Today</h3>{_cost(found.today, n)}<h3>Since the beginning</h3>{_cost(found.totals, n)}", waiting]


def _cost(totals: Totals, n: int) -> str:
    asked = f"{totals.steps:,} requests, {totals.private:,} of them for everything"
    got = f"{totals.downloaded:,} messages, {totals.bytes:,} bytes"
    beside = f"To mirror everything takes {n * totals.steps:,} messages, to ask openly {totals.steps:,}"
    return f"<p>{asked}: {got}. {beside}.</p>"


def _habits(queue: RequestQueue, habits: HabitsStatus) -> str:
    words = escape(habits.words(queue.client.path))  # no foreign words, and too many for `_safe`
    kind = ' class="loud"' if habits.blown else ""
    return _section("", f"Habits <small>{habits.stage}</small>", f"<p{kind}>{words[0].upper()}{words[1:]}.</p>")


def _link(name: str) -> str:
    """Link a source; no link to a name that programs tidy up before they ask."""
    if not {".", "..", ""}.isdisjoint(name.split("/")):
        return _safe(name)
    return f'<a href="/{escape(quote(name, safe=""))}">{_safe(name)}</a>'


def _safe(words: str) -> str:
    """Escape foreign words: one line, printable."""
    return escape(plain(words))

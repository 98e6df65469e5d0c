"""The proxy's own page: one HTML document without scripts, in which every foreign word is escaped.

It is rendered from the queue and from what the journal says, which is read in a thread.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection
from html import escape
from typing import NamedTuple
from urllib.parse import quote

from onoff.client.client import Client
from onoff.client.habits import HabitsStatus
from onoff.client.promises import PROMISES, SENSITIVE
from onoff.client.queue import RequestQueue
from onoff.client.status import Account, account
from onoff.logs.follow import Following, follows, read_journal_requests
from onoff.text import plain

NEWEST = 2_000  # requests that are tested; a longer look is `onoff check`
REMEDY = (
    "<p>What is promised does not hold for such requests. Switch ON first: then every request asks for everything, "
    "and tells nothing whatever the chain is. If you reload all feeds at once, stay ON. If not, your habits have "
    "changed, or the chain was learned from few requests. Then learn again, in a new journal, or import another chain. "
    "A chain fitted to this journal would tell of its private requests.</p>"
)

STYLE = """
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.loud { border-left: .3rem solid #c00; padding-left: .8rem; font-weight: 600 }
dt { font-weight: 600 } dd { margin: 0 0 .6rem 0 }
button { font: inherit; padding: .4rem 1rem }
li { overflow-wrap: anywhere }
"""
HEADERS = {
    "content-security-policy": "default-src 'none'; base-uri 'none'; frame-ancestors 'none'; form-action 'self'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'; img-src data:",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with less, browsers do not say that the form below is ours
    "cache-control": "no-store",
}


class Status(NamedTuple):
    """What the journal says, and whether requests follow the chain that it was made with, if it was."""

    journal: Account
    following: Following | None


def read_account(client: Client) -> Status:
    """Read the journal, over a connection of its own: queries leave on time meanwhile."""
    found = account(client.path)
    if found.memory.learning is not None:
        return Status(found, None)
    made = read_journal_requests(client.path, client.chain).indices
    return Status(found, follows(client.chain, made[-NEWEST:]))


def render(queue: RequestQueue, status: Status, linked: Collection[str], token: str) -> str:
    """The page. `linked` are the sources that have a path. `token` goes into the form: who sends it has seen it."""
    names, sensitive, habits = queue.client.chain.names, queue.client.journal.sensitive, queue.client.habits
    assert habits is not None, "a proxy keeps a promise that needs no announcement"
    parts = [
        *_mode(queue, habits),
        *_switch(queue, habits, token),
        *_following(status.following),
        "<h2>Sources</h2><p>Every visit to one of these is a request, and makes a step.</p><ul>",
        *(_source(name, name in linked, number in sensitive) for number, name in enumerate(names)),
        "</ul><h2>So far</h2><dl>",
        *_numbers(queue, status),
        "</dl>",
        f"<h2>Last error</h2><p>{_safe(queue.trouble)}</p>" if queue.trouble else "",
    ]
    return _document("".join(parts))


def render_link(name: str) -> str:
    """A page for a browser that was led to a source: the click on its link is the request."""
    return _document(
        f"<p>Your browser was led here. To read {_link(name)} is a request, and makes a step: click if you want it.</p>"
    )


def _document(inner: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>onoff proxy</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><main><h1>onoff proxy</h1>{inner}</main></body></html>"
    )


def _mode(queue: RequestQueue, habits: HabitsStatus) -> list[str]:
    name = queue.client.journal.promise
    promise = PROMISES[name].replace("the server believes", "the servers believe")
    hidden = SENSITIVE.replace("the server learns", "the servers learn")
    said = [f"<p>Promise <b>{name}</b>: {escape(promise)}.</p>"]
    if queue.client.journal.sensitive:
        said.append(f"<p>Sensitive sources: {escape(hidden)}.</p>")
    if habits.stage != "known":
        words = escape(habits.words(queue.client.path))  # no foreign words, and too many for `_safe`
        kind = ' class="loud"' if habits.blown else ""
        said.append(f"<p{kind}>{words}.</p>")
    return said


def _switch(queue: RequestQueue, habits: HabitsStatus, token: str) -> list[str]:
    now, other = ("ON", "off") if queue.private else ("OFF", "on")
    but = ", except the sensitive ones" if queue.client.journal.sensitive else ""
    effect = f"new requests are open{but}: the servers learn the open ones in part"
    advice = "Do not switch because of what you are about to read: the servers see when you switch."
    if queue.private:
        effect = "new requests are private"
    if habits.stage == "all" or (habits.stage == "learn" and not queue.private):
        effect = "new requests ask for everything"
    return [
        f"<h2>Privacy is {now}</h2><p>While it is {now}, {effect}.</p>",
        '<form method="post" action="/onoff/privacy">',
        f'<input type="hidden" name="token" value="{escape(token)}">',
        f'<button name="privacy" value="{other}">Switch {other.upper()}</button></form>',
        f"<p>{advice}</p>",
    ]


def _following(found: Following | None) -> list[str]:
    if found is None:
        return []
    kind = ' class="loud"' if found.refuted else ""
    said = f"<h2>Do requests follow the chain?</h2><p{kind}>{_safe(found.words())}.</p>"
    return [said, REMEDY] if found.refuted else [said]


def _source(name: str, linked: bool, sensitive: bool) -> str:
    return f"<li>{_link(name) if linked else _safe(name)}{' (sensitive)' if sensitive else ''}</li>"


def _link(name: str) -> str:
    """A link to a source; none to a name that programs tidy up before they ask."""
    if not {".", "..", ""}.isdisjoint(name.split("/")):
        return _safe(name)
    return f'<a href="/{escape(quote(name, safe=""))}">{_safe(name)}</a>'


def _numbers(queue: RequestQueue, status: Status) -> list[str]:
    journal, n = status.journal, queue.client.chain.n
    totals, pending = journal.totals, journal.state.pending is not None
    made = f"{totals.private:,} of them ON"
    rows = {
        "requests": f"{totals.steps:,}, {made}",
        "downloaded": f"{totals.downloaded:,.0f} messages, {totals.bytes:,} bytes; asking openly takes "
        f"{totals.steps:,} messages, and downloading everything {n * totals.steps:,}",
        "rounding": f"{journal.state.rounding:.2e} (total variation, added up over all steps)",
        "waiting": f"{queue.waiting} requests" + (", and a step is not finished" if pending else ""),
    }
    return [f"<dt>{key}</dt><dd>{escape(value)}</dd>" for key, value in rows.items()]


def _safe(words: str) -> str:
    """Foreign words for HTML: one line, printable, escaped."""
    return escape(plain(words))

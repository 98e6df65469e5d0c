"""The proxy's own page: one HTML document without scripts, in which every foreign word is escaped.

`StatusReporter` reads what it says from the queue and the journal. It reads the journal in a thread, over a connection
of its own: queries leave on time meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from html import escape
from pathlib import Path

from onoff.apps.proxy.queue import RequestQueue, Trouble
from onoff.client.learning import Learned
from onoff.client.promises import PROMISES, SENSITIVE
from onoff.client.status import Account, account
from onoff.logs.follow import Following, follows, read_journal_requests
from onoff.logs.read import read_journal
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


@dataclass(frozen=True)
class Status:
    """What the page says. There is no chain to follow while the proxy learns, and it learns only without a chain."""

    path: Path  # of the journal
    names: tuple[str, ...]
    sensitive: tuple[str, ...]
    private: bool
    waiting: int
    journal: Account
    following: Following | None
    learned: Learned | None
    troubles: tuple[Trouble, ...]


class StatusReporter:
    """Reads the status of a proxy. It reads the journal again after new steps only."""

    def __init__(self, queue: RequestQueue) -> None:
        self._queue = queue
        self._seen: tuple[tuple[int, bool], Account, Following | None, Learned | None] | None = None
        self._turn = asyncio.Lock()

    async def read(self) -> Status:
        queue, client = self._queue, self._queue.client
        names, state = client.chain.names, client.journal.state
        moment = (state.step, state.pending is not None)
        async with self._turn:
            if self._seen is None or self._seen[0] != moment:
                self._seen = (moment, *await asyncio.to_thread(self._look))
            _, journal, following, learned = self._seen
        hidden = tuple(names[source] for source in journal.sensitive)
        return Status(
            client.path, names, hidden, queue.private, queue.waiting, journal, following, learned, tuple(queue.troubles)
        )

    def _look(self) -> tuple[Account, Following | None, Learned | None]:
        client = self._queue.client
        found = account(client.path)
        if client.learns:
            kept = read_journal(client.path)
            return found, None, Learned(client.chain.n, len(kept.private), sum(kept.private))
        made = read_journal_requests(client.path, client.chain).indices
        return found, follows(client.chain, made[-NEWEST:]), None


def render(status: Status, path_of: Callable[[str], str | None], token: str) -> str:
    """The page. `path_of` gives the path of a source. `token` goes into the form: who sends it has seen the page."""
    parts = [
        *_mode(status),
        *_switch(status, token),
        *_following(status),
        "<h2>Sources</h2><p>Every visit to one of these is a request, and makes a step.</p><ul>",
        *(_source(name, path_of(name), name in status.sensitive) for name in status.names),
        "</ul><h2>So far</h2><dl>",
        *_numbers(status),
        "</dl>",
        *_troubles(status),
    ]
    return _document("".join(parts))


def render_link(path: str, name: str) -> str:
    """A page for a browser that was led to a source: the click on its link is the request."""
    link = f'<a href="{escape(path)}">{_safe(name)}</a>'
    return _document(
        f"<p>Your browser was led here. To read {link} is a request, and makes a step: click if you want it.</p>"
    )


def _document(inner: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>onoff proxy</title>'
        '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
        f"<style>{STYLE}</style></head><body><main><h1>onoff proxy</h1>{inner}</main></body></html>"
    )


def _mode(status: Status) -> list[str]:
    if status.learned is not None:
        words = escape(status.learned.words(status.path))  # no foreign words, and too many for `_safe`
        return [f"<p>{words}.</p><p>Every request asks for everything, so none tells anything.</p>"]
    promise = PROMISES["past"].replace("the server believes", "the servers believe")
    hidden = SENSITIVE.replace("the server learns", "the servers learn")
    said = f"<p>Promise <b>past</b>: {escape(promise)}.</p>"
    return [said, f"<p>Sensitive sources: {escape(hidden)}.</p>"] if status.sensitive else [said]


def _switch(status: Status, token: str) -> list[str]:
    now, other = ("ON", "off") if status.private else ("OFF", "on")
    but = ", except the sensitive ones" if status.sensitive else ""
    effect = f"new requests are open{but}: the servers learn the open ones in part"
    advice = "Do not switch because of what you are about to read: the servers see when you switch."
    if status.private:
        effect = "new requests are private"
    if status.learned is not None:
        effect = "new requests are noted as private" if status.private else "new requests are noted as open"
        advice = (
            "While learning, the switch changes only what is noted. A chain can be fitted to this journal as long as "
            "no request in it was private."
        )
    return [
        f"<h2>Privacy is {now}</h2><p>While it is {now}, {effect}.</p>",
        '<form method="post" action="/onoff/privacy">',
        f'<input type="hidden" name="token" value="{escape(token)}">',
        f'<button name="privacy" value="{other}">Switch {other.upper()}</button></form>',
        f"<p>{advice}</p>",
    ]


def _following(status: Status) -> list[str]:
    found = status.following
    if found is None:
        return []
    kind = ' class="loud"' if found.refuted else ""
    said = f"<h2>Do requests follow the chain?</h2><p{kind}>{_safe(found.words())}.</p>"
    return [said, REMEDY] if found.refuted else [said]


def _source(name: str, path: str | None, sensitive: bool) -> str:
    shown = _safe(name)
    link = shown if path is None else f'<a href="{escape(path)}">{shown}</a>'
    return f"<li>{link}{' (sensitive)' if sensitive else ''}</li>"


def _numbers(status: Status) -> list[str]:
    journal, n = status.journal, len(status.names)
    totals, pending = journal.totals, journal.state.pending is not None
    made = f"{totals.private:,} of them ON" if status.learned is None else "all made with everything"
    rows = {
        "requests": f"{totals.steps:,}, {made}",
        "downloaded": f"{totals.downloaded:,.0f} messages, {totals.bytes:,} bytes; asking openly takes "
        f"{totals.steps:,} messages, and downloading everything {n * totals.steps:,}",
        "rounding": f"{journal.state.rounding:.2e} (total variation, added up over all steps)",
        "waiting": f"{status.waiting} requests" + (", and a step is not finished" if pending else ""),
    }
    return [f"<dt>{key}</dt><dd>{escape(value)}</dd>" for key, value in rows.items()]


def _troubles(status: Status) -> list[str]:
    if not status.troubles:
        return []
    lines = []
    for trouble in reversed(status.troubles):
        when = datetime.fromtimestamp(trouble.at).isoformat(" ", "seconds")
        lines.append(f'<li><time datetime="{when}">{when}</time>: {_safe(trouble.words)}</li>')
    return ["<h2>Last errors</h2><ul>", *lines, "</ul>"]


def _safe(words: str) -> str:
    """Foreign words for HTML: one line, printable, escaped."""
    return escape(plain(words))

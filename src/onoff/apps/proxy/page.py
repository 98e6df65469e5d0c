"""The proxy's own page: one HTML document without scripts, in which every foreign word is escaped."""

from __future__ import annotations

import base64
import hashlib
import shlex
from datetime import datetime
from html import escape

from onoff.apps.proxy.facts import Facts
from onoff.apps.proxy.naming import Naming
from onoff.client.promises import PROMISES, SENSITIVE
from onoff.foreign import plain

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


def rendered(facts: Facts, naming: Naming, token: str) -> str:
    """The page. `token` goes into its form: only who has seen the page can send it."""
    parts = [
        *_mode(facts),
        *_switch(facts, token),
        *_following(facts),
        "<h2>Sources</h2><p>Every visit to one of these is a request, and makes a step.</p><ul>",
        *(_source(name, naming.path(name), name in facts.sensitive) for name in facts.names),
        "</ul><h2>So far</h2><dl>",
        *_numbers(facts),
        "</dl>",
        *_troubles(facts),
    ]
    return _document("".join(parts))


def asked_again(path: str, name: str) -> str:
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


def _mode(facts: Facts) -> list[str]:
    if facts.learned is not None:
        words = escape(facts.learned.words(facts.path))  # no foreign words, and too many for `_safe`
        return [f"<p>{words}.</p><p>Every request asks for everything, so none tells anything.</p>"]
    promise = PROMISES["past"].replace("the server believes", "the servers believe")
    hidden = SENSITIVE.replace("the server learns", "the servers learn")
    said = f"<p>Promise <b>past</b>: {escape(promise)}.</p>"
    return [said, f"<p>Sensitive sources: {escape(hidden)}.</p>"] if facts.sensitive else [said]


def _switch(facts: Facts, token: str) -> list[str]:
    now, other = ("ON", "off") if facts.private else ("OFF", "on")
    but = ", except the sensitive ones" if facts.sensitive else ""
    effect = f"new requests are open{but}: the servers learn the open ones in part"
    advice = "Do not switch because of what you are about to read: the servers see when you switch."
    if facts.private:
        effect = "new requests are private"
    if facts.learned is not None:
        effect = "new requests are noted as private" if facts.private else "new requests are noted as open"
        advice = (
            "While learning, the switch changes only what is noted. Switch OFF for what need not be hidden: "
            "a chain can then be fitted to open requests alone."
        )
    return [
        f"<h2>Privacy is {now}</h2><p>While it is {now}, {effect}.</p>",
        '<form method="post" action="/onoff/privacy">',
        f'<input type="hidden" name="token" value="{escape(token)}">',
        f'<button name="privacy" value="{other}">Switch {other.upper()}</button></form>',
        f"<p>{advice}</p>",
    ]


def _following(facts: Facts) -> list[str]:
    found = facts.following
    if found is None:
        return []
    kind = ' class="loud"' if found.refuted else ""
    said = f"<h2>Do requests follow the chain?</h2><p{kind}>{_safe(found.words())}.</p>"
    return [said, _remedy(facts)] if found.refuted else [said]


def _remedy(facts: Facts) -> str:
    """What to do if the requests do not follow the chain."""
    journal = shlex.quote(str(facts.path))
    return (
        "<p>What is promised does not hold for such requests. Switch ON first: then every request asks for everything, "
        "and tells nothing whatever the chain is. If you reload all feeds at once, stay ON. If not, your "
        "habits have changed, or the chain was learned from few requests. Then fit another one to what was asked "
        "OFF, those of the journal it was learned with and those of this one, and begin a new journal with it: "
        f"<code>onoff fit LEARNED {escape(journal)} -o new.json --open-only</code>.</p>"
    )


def _source(name: str, path: str | None, sensitive: bool) -> str:
    shown = _safe(name)
    link = shown if path is None else f'<a href="{escape(path)}">{shown}</a>'
    return f"<li>{link}{' (sensitive)' if sensitive else ''}</li>"


def _numbers(facts: Facts) -> list[str]:
    journal, n = facts.journal, len(facts.names)
    totals, traffic, pending = journal.totals, journal.traffic, journal.state.pending is not None
    made = f"{totals.private:,} of them ON" if facts.learned is None else "all made with everything"
    rows = {
        "requests": f"{totals.steps:,}, {made}",
        "downloaded": f"{totals.downloaded:,.0f} messages, {totals.bytes:,} bytes; asking openly takes "
        f"{totals.steps:,} messages, and downloading everything {n * totals.steps:,}",
        "rounding": f"{journal.state.rounding:.2e} (total variation, added up over all steps)",
        "waiting": f"{facts.waiting} requests" + (", and a step is not finished" if pending else ""),
    }
    if traffic is not None:
        rows["of the bytes"] = (
            f"{traffic.changed:,} had changed; about {traffic.openly:,.0f} if asked for openly, "
            f"{traffic.mirrored:,.0f} to mirror everything, {traffic.everything:,.0f} to download everything each time"
        )
    return [f"<dt>{key}</dt><dd>{escape(value)}</dd>" for key, value in rows.items()]


def _troubles(facts: Facts) -> list[str]:
    if not facts.troubles:
        return []
    lines = []
    for trouble in reversed(facts.troubles):
        when = datetime.fromtimestamp(trouble.at).isoformat(" ", "seconds")
        lines.append(f'<li><time datetime="{when}">{when}</time>: {_safe(trouble.words)}</li>')
    return ["<h2>Last errors</h2><ul>", *lines, "</ul>"]


def _safe(words: str) -> str:
    """Foreign words for HTML: one line, printable, escaped."""
    return escape(plain(words))

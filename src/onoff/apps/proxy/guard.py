"""Who may use a server of this machine, the proxy or the page: its programs and its user, but no web page of others.

A page of a hostile site, or a feed that a browser shows, can make the browser send requests here: as a picture, a form,
a frame, a prefetch, or under a name that its owner makes point to this machine (DNS rebinding). For the proxy each
would be a step that the user has not made. Browsers mark such requests, and they are refused before anything is done:

- The host must be an address in digits or `localhost`. A name that somebody else controls is neither. Two kinds of
  digits also lead to this machine, but browsers leave `Sec-Fetch-Site` out there: 0.0.0.0, and 127.0.0.1 written as
  IPv6. They are refused.
- `Sec-Fetch-Site`, which pages cannot change, must be `none` (typed, or a bookmark) or `same-origin` (our own page).
- `Origin`, if there is one, must be our own.
- A browser that only prepares for a click (`Sec-Purpose`) gets nothing.
- An address that was typed, or opened by another program, may have led here from a stranger's page: a redirect keeps
  `none`. So a browser that opens a source of the proxy in this way gets a link to it on a page of ours, and the click
  is the step.

Bodies of others get no power over the proxy either: see `responses`.
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from starlette.datastructures import Headers

OWN_SITES = ("none", "same-origin")
HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^:\[\]/@]+))(?::[0-9]{1,5})?")


def refusal(headers: Headers) -> tuple[int, str] | None:
    """Choose the status and sentence that turn a request away; None if it may come in."""
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not _is_ours(hosts[0]):
        return 403, "this is for this machine only: ask at http://127.0.0.1 or http://localhost and its port"
    if any(site not in OWN_SITES for site in headers.getlist("sec-fetch-site")):
        return 403, "another web page may not use this: type the address yourself, or start at its own page"
    if any(origin != f"http://{hosts[0]}" for origin in headers.getlist("origin")):
        return 403, "another web page may not use this"
    if any("prefetch" in headers.get(name, "").lower() for name in ("sec-purpose", "purpose", "x-moz")):
        return 403, "nothing is fetched in advance"
    return None


def is_outside_navigation(headers: Headers) -> bool:
    """True if a browser opens an address that did not come from a page of ours: by a person, or by a redirect."""
    return headers.get("sec-fetch-site") == "none" and headers.get("sec-fetch-mode", "navigate") == "navigate"


def _is_ours(host: str) -> bool:
    """True if a Host header has an address in digits, but none of the two kinds above, or `localhost`."""
    match = HOST.fullmatch(host)
    if match is None:
        return False
    name = match["six"] or match["name"]
    if name.lower() in ("localhost", "localhost."):
        return True
    try:
        address = ip_address(name)
    except ValueError:
        return False
    return not address.is_unspecified and (address.version == 4 or address.ipv4_mapped is None)

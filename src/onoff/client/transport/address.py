"""Addresses and tokens, checked when they are given: what cannot work is an error that says so, before any request."""

from __future__ import annotations

import re
from reprlib import repr as short
from urllib.parse import SplitResult, urlsplit

import httpx

from onoff.errors import CatalogueError
from onoff.foreign import plain


def checked_server(url: str) -> str:
    """The address of an onoff server without a slash at its end. Raises `CatalogueError` if it is not an address."""
    parts = checked_url(url, "http://HOST:PORT is needed")
    if parts.query or parts.fragment:
        raise CatalogueError(f"{masked(url)} is not the address of a server: http://HOST:PORT is needed")
    return url.rstrip("/")


def checked_url(url: str, needed: str = "http(s)://host/path is needed") -> SplitResult:
    """The parts of a URL that can be asked for; `needed` says what it should look like."""
    if not isinstance(url, str):
        raise CatalogueError(f"{short(url)} is not an address: {needed}")
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
        _ = parts.port, httpx.URL(url).raw_host  # both look closer: at the number, and at the letters of the host
    except (ValueError, httpx.InvalidURL, UnicodeError) as error:
        raise CatalogueError(f"{masked(url)} is not an address ({plain(str(error))}): {needed}") from None
    if not fits:
        raise CatalogueError(f"{masked(url)} is not an address: {needed}")
    if parts.username is not None:
        raise CatalogueError(f"{masked(url)} has a name or password in it, which would be sent: {needed}")
    return parts


def origin_of(url: str) -> str:
    """Scheme, host and port of a URL in one canonical form: small letters, and no port that the scheme implies."""
    scheme, rest = url.split(":", 1)
    parts = httpx.URL(f"{scheme.lower()}:{rest}")  # httpx knows the ports of schemes in small letters only
    return f"{parts.scheme}://{parts.netloc.decode('ascii')}"


def request_of(url: str) -> str:
    """What is asked for: two URLs with the same one are the same, however they are written."""
    return origin_of(url) + httpx.URL(url).raw_path.decode("ascii")


def checked_token(token: str) -> str:
    """A token that fits into a header; the error does not repeat it."""
    if isinstance(token, str) and not token:
        raise CatalogueError("the reader's token is empty: set ONOFF_TOKEN to a token, or unset it if none is needed")
    if not isinstance(token, str) or not re.fullmatch(r"[A-Za-z0-9._~+/-]+=*", token):
        raise CatalogueError("the reader's token has a character that no token has: was all of ONOFF_TOKEN copied?")
    return token


def masked(url: str) -> str:
    """The address for an error, without what may be a password in it."""
    return repr(plain(re.sub(r"//[^/]*@", "//...@", url), 100))

"""Servers that keep every byte, as clients of these tests meet them. A file may have a `world` of its own."""

from __future__ import annotations

import pytest

from clientkit import TRANSPORTS, scene


@pytest.fixture(params=TRANSPORTS)
def world(request, tmp_path):
    """Both kinds of server, one after the other."""
    with scene(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def own(tmp_path):
    """An onoff server."""
    with scene("own", tmp_path) as found:
        yield found


@pytest.fixture
def any_origin(tmp_path):
    """A web server that knows nothing of us."""
    with scene("any", tmp_path) as found:
        yield found

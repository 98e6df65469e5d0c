"""Servers that keep every byte, as proxies of these tests meet them."""

from __future__ import annotations

import pytest

from clientkit import scene


@pytest.fixture
def world(tmp_path):
    """A web server that knows nothing of us."""
    with scene("any", tmp_path) as made:
        yield made


@pytest.fixture
def own(tmp_path):
    """An onoff server: its steps stay pending while it does not answer."""
    with scene("own", tmp_path) as made:
        yield made

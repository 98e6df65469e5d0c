"""What the campaigns against clients share."""

from __future__ import annotations

import pytest

from crashkit import Driver


@pytest.fixture
def driver(tmp_path):
    """The process that runs clients, with a cache of its own."""
    with Driver(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache")) as process:
        yield process

"""Plan files as others write them, with what strangers put in the place of a chain."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path

from onoff import Chain


def signed(data: dict[str, object]) -> bytes:
    """A plan file with a checksum of its own: what a forger would write."""
    data = {key: value for key, value in data.items() if key != "checksum"}
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return json.dumps({**data, "checksum": hashlib.sha256(canonical.encode()).hexdigest()}).encode()


def a_bit(file: Path) -> None:
    """One bit of a probability, which leaves every row a row."""
    content = bytearray(file.read_bytes())
    content[-8] ^= 1
    file.write_bytes(content)


def a_link(file: Path) -> None:
    """A link to the very bytes."""
    file.rename(file.with_name("elsewhere"))
    file.symlink_to(file.with_name("elsewhere"))


def huge(file: Path) -> None:
    """The right bytes, and a terabyte of nothing behind them."""
    with file.open("r+b") as stream:
        stream.truncate(2**40)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-8])


def another(file: Path) -> None:
    """A chain, well-formed, under the name of this one."""
    chain = Chain.load(file)
    Chain(chain.P[::-1], chain.names).save(file)


EXCHANGED = (a_bit, a_link, huge, cut, another, Path.unlink)


def wait(planner, lag, timeout):
    """`planner.best(lag)` once the background has done all it can for this lag, or the timeout has passed."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        planner.best(lag)
        if planner._reach >= lag or not planner._background:
            break
        time.sleep(0.02)
    return planner.best(lag)

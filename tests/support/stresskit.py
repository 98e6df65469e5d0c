"""Campaigns: many random runs of one kind, counted. `make stress` runs them whole, `make test` a hundredth.

The share is in the environment, ONOFF_STRESS=0.1 for a tenth. Every run has a seed, which a failure names. What a
campaign counts goes into a table at the end of the session (conftest.py).
"""

from __future__ import annotations

import json
import os
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from onoff.wire import Catalogue, QueryMessage

SHARE = float(os.environ.get("ONOFF_STRESS", "0.002"))
ADVICE = ("damaged", "move it away", "delete", "throw")  # never for a disk that is full or read-only
EVERY = 20.0  # seconds between two lines of progress


def portion(whole: int, least: int = 1) -> int:
    """How many of the runs of a whole campaign are made here."""
    return max(least, round(whole * SHARE))


class Campaign:
    """Counts what happened, and says how far it has come."""

    def __init__(self, name: str, say: Callable[[str], None]) -> None:
        self.name, self.counts = name, Counter()
        self._say, self._begun, self._said = say, time.monotonic(), time.monotonic()

    def count(self, what: str, times: int = 1) -> None:
        self.counts[what] += times

    def runs(self, whole: int, label: str) -> Iterator[random.Random]:
        """A generator of chance for each run of this share, of `whole`; what fails says which it was."""
        total = portion(whole)
        for number in range(total):
            with self.seed(f"{self.name} {label} {number}") as rng:
                yield rng
            self.count("runs")
            self.progress(f"{label} {number + 1} of {total}")

    @contextmanager
    def seed(self, name: str) -> Iterator[random.Random]:
        try:
            yield random.Random(name)
        except BaseException as error:
            error.add_note(f"stress: the run is random.Random({name!r})")
            raise

    def progress(self, words: str) -> None:
        if time.monotonic() > self._said + EVERY:
            self._said = time.monotonic()
            counts = ", ".join(f"{what} {number}" for what, number in sorted(self.counts.items()))
            self._say(f"{self.name}: {words} ({counts})")

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begun


def say(words: str) -> None:
    print(f"[stress] {words}", file=sys.stderr, flush=True)


def query_body(catalogue: Catalogue, rng: random.Random, step: int, sources: tuple[int, ...]) -> bytes:
    """A valid query of a stream of its own."""
    stream = f"{rng.getrandbits(128):032x}"
    held = tuple(rng.choice((0, 1, 2)) for _ in sources)
    return QueryMessage(catalogue.fingerprint, stream, step, sources, held).encode()


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some of them flipped, cut out, doubled, inserted or swapped."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        a, b = sorted((rng.randint(0, len(changed)), rng.randint(0, len(changed))))
        match rng.randrange(6):
            case 0 if changed:
                changed[min(a, len(changed) - 1)] ^= 1 << rng.randrange(8)
            case 1:
                del changed[a:b]
            case 2:
                changed[a:a] = changed[a:b][:2000]
            case 3:
                changed[a:a] = rng.randbytes(rng.randint(1, 8))
            case 4:
                changed[a:b] = bytes(b - a)
            case _:
                changed[a : a + 4] = rng.choice((b"-1", b"1e9", b"null", b"[[", b"}", b"\x00", b"99999999999999999999"))
    return bytes(changed)


def said(errors: Path, since: int) -> str:
    """What was written to a log since it had this length."""
    with errors.open("rb") as stream:
        stream.seek(since)
        return stream.read().decode("utf-8", "replace")


def steps_of(journal: Path) -> list[tuple[tuple[int, ...], bool, bool]]:
    """The query of every step of a whole journal, whether it was ON, and whether it was answered."""
    with closing(sqlite3.connect(f"{journal.absolute().as_uri()}?mode=ro", uri=True)) as database:
        rows = database.execute("SELECT query, private, bytes FROM steps ORDER BY step").fetchall()
    return [(tuple(json.loads(query)), private == 1, size is not None) for query, private, size in rows]

"""The laws that a client of the promise `past` has made: in memory, and in a file beside its journal.

Chain, sensitive sources and last queries determine a law, and most laws come again. So the client makes each once and
keeps it, with the user's seal (`onoff.plans.file.seal`). It makes a law anew if its line is damaged or somebody else
wrote it. Each journal has a file of its own: if journals shared one, the time of a query would show one server what
another was asked. The file is erased with the journal's history, since it tells of past queries.
"""

from __future__ import annotations

import hashlib
import json
import os
from base64 import b64decode, b64encode
from contextlib import suppress
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from onoff.client.laws import maker
from onoff.errors import OnoffError
from onoff.files import read_regular
from onoff.past import Candidates, RaceStep, StepLaw
from onoff.past.step import prepare
from onoff.plans.file import seal
from onoff.schemes.certificate import Certificate
from onoff.schemes.law import Law

LARGEST = 64 * 2**20  # bytes of the file: then it begins anew
KEPT = 16  # steps in memory
APPENDING = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# What reading a line may raise that anybody may have written.
DAMAGE = OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError
KEY = slice(len('{"key": "'), len('{"key": "') + 64)  # where a line has its key


class LawStore:
    """The laws of the journal at `path`."""

    def __init__(self, path: Path) -> None:
        self._file = laws_beside(path)
        self._steps: dict[Candidates, StepLaw | RaceStep] = {}
        self._lines = self._index()

    def step(self, candidates: Candidates) -> StepLaw | RaceStep:
        """The next OFF step of these candidates: remembered, read or made."""
        found = self._steps.pop(candidates, None)
        if found is None:
            key = _key(candidates)
            found = self._read(key, candidates)
            if found is None:
                found = prepare(candidates)
                if isinstance(found, StepLaw) and found.owners is None:
                    self._append(key, found)
        self._steps[candidates] = found
        if len(self._steps) > KEPT:
            del self._steps[next(iter(self._steps))]
        return found

    def _index(self) -> dict[str, int]:
        """Where each law's line begins. What is no file of ours makes room for one."""
        found, place, content = {}, 0, b""
        try:
            content = read_regular(self._file, LARGEST)
        except OnoffError:
            with suppress(OSError):
                self._file.unlink()
        for line in BytesIO(content):
            found[line[KEY].decode("ascii", "replace")] = place
            place += len(line)
        return found

    def _read(self, key: str, candidates: Candidates) -> StepLaw | None:
        place = self._lines.get(key)
        if place is None:
            return None
        with suppress(*DAMAGE), self._file.open("rb") as lines:
            lines.seek(place)
            data = json.loads(lines.readline())
            stated = data.pop("seal")
            if data["key"] == key and stated and stated == seal(data):
                step = StepLaw(candidates, _law(data), Certificate.from_dict(data["certificate"]))
                step.prove()
                return step
        return None

    def _append(self, key: str, step: StepLaw) -> None:
        """Keep a law, if there is room. What cannot be kept is made again."""
        law = step.inner
        data: dict[str, Any] = {
            "key": key,
            "sources": law.n,
            "member": b64encode(np.packbits(law.member).tobytes()).decode(),
            "mass": b64encode(law.mass.astype("<i8").tobytes()).decode(),
            "certificate": asdict(step.certificate),
        }
        data["seal"] = seal(data)
        line = json.dumps(data).encode() + b"\n"
        if not data["seal"] or len(line) > LARGEST:
            return
        with suppress(OSError):
            descriptor = os.open(self._file, APPENDING, 0o600)
            try:
                os.fchmod(descriptor, 0o600)  # it may be older
                place = os.fstat(descriptor).st_size
                if place + len(line) > LARGEST:
                    os.ftruncate(descriptor, 0)
                    self._lines, place = {}, 0
                os.write(descriptor, line)
                self._lines[key] = place
            finally:
                os.close(descriptor)


def laws_beside(path: Path) -> Path:
    """The file of a journal's laws."""
    return path.with_name(path.name + ".law-cache")


def _key(candidates: Candidates) -> str:
    """The hash of what determines a law, to the last digit."""
    parts = [maker(), candidates.chain.fingerprint, candidates.hidden, candidates.states]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _law(data: dict[str, Any]) -> Law:
    mass = np.frombuffer(b64decode(data["mass"]), "<i8").astype(np.int64)
    bits = np.frombuffer(b64decode(data["member"]), np.uint8)
    shape = len(mass), data["sources"]
    return Law(np.unpackbits(bits, count=shape[0] * shape[1]).astype(bool).reshape(shape), mass)

"""What `onoff setup` writes and `onoff proxy` runs: a directory with a list of sources, its settings and its journal.

    settings.json    the list and the settings; replaced whole, and nothing else counts
    urls.json        {name: URL}, for `onoff get --urls`
    feeds.opml       the addresses at the proxy, for the reader's program
    journal-NUMBER   the proxy's memory; a journal is for one list, so each list has its own

It lies with the user's state, and not with the configuration that people copy between machines: a journal that was
copied would ask again for what was already asked.

Lists and their changes are public. When a list changes, the new journal begins with full sets, and takes over the chain
only if queries have shown it (`onoff.client.status.used_chain`). The old journal, with all requests, is deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from onoff.client.client import Client
from onoff.client.connect import connect, default_journal
from onoff.client.feeds import NONE, Source
from onoff.client.memory import Memory
from onoff.client.rollback import RollbackGuard
from onoff.client.status import snapshot, used_chain
from onoff.errors import JournalLocked, OnoffError
from onoff.files import read_json, write_atomically
from onoff.model.chain import Chain, UnknownChain
from onoff.model.misfit import FEW
from onoff.text import plain

PORT = 8800
FRESH = "5m"  # for how long the copies of a proxy count as the newest, at least
OURS = re.compile(r"journal-([0-9]+)([.-].*)?")  # and what stands beside it: its lock, logs of SQLite
SEEN = 1.0  # how often a new source counts as seen after each state
UNKNOWN = 5.0  # transitions: as many count the shares of all requests as the row of a state of which nothing is known


@dataclass(frozen=True)
class Setup:
    """Set-up in a directory. `sources` are sorted by name; `server` is an onoff server, if they are there.

    Without a chain the journal learns one (promise "past"), or asks for everything for ever ("all"). Sources that are
    `sensitive` need a chain. Without one the promise is "all", which hides them too, and they are kept for later.
    """

    directory: Path
    sources: Mapping[str, Source]
    server: str | None = None
    promise: str = "past"
    sensitive: tuple[str, ...] = ()
    chain: Chain | None = None
    port: int = PORT
    number: int = 1

    def __post_init__(self) -> None:
        known = UnknownChain(tuple(self.sources))
        for name in self.sensitive:
            known.index(name)
        if self.promise not in ("past", "all"):
            raise OnoffError(f"the promise is {self.promise!r}: a proxy keeps 'past' or 'all'")
        if self.promise == "past" and self.sensitive and self.chain is None:
            raise OnoffError("sensitive sources need a chain: give --chain, or the promise 'all', which hides them too")

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read the settings of a directory."""
        file = directory / "settings.json"
        if not has_setup(directory):
            raise OnoffError(
                f"{directory}: nothing is set up here: run `onoff setup LIST`, with your feeds as OPML, a list of "
                "URLs, or the address of an onoff server"
            )
        data = read_json(file)
        try:
            data["sources"] = {name: Source(**about) for name, about in data["sources"].items()}
            data["sensitive"] = tuple(data["sensitive"])
            data["chain"] = None if data["chain"] is None else Chain.from_dict(data["chain"])
            return cls(directory, **data)
        except (OnoffError, AttributeError, KeyError, TypeError) as error:
            raise OnoffError(f"{file}: cannot be used ({plain(str(error))}): mend it, or set up with --force") from None

    @property
    def journal(self) -> Path:
        return self.directory / f"journal-{self.number}"

    @property
    def feeds(self) -> Path:
        return self.directory / "feeds.opml"

    def client(self, **options: Any) -> Client:
        """Make the proxy's client."""
        urls = {name: source.url for name, source in self.sources.items()}
        place = {"urls": urls} if self.server is None else {"server": self.server}
        hidden = () if self.chain is None else self.sensitive
        kept: dict[str, Any] = {"journal": self.journal, "promise": self.promise, "sensitive": hidden, "fresh": FRESH}
        return connect(self.chain, **place, **kept, **options)

    async def begin(self, noted: Memory, token: str | None) -> None:
        """Make the journal, which shows whether all parts fit, and then the other files: all, or nothing.

        The journal goes on from what the previous one `noted`.
        """
        is_new = not self.directory.exists()
        self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            async with self.client(token=token, cache=noted.cache, keep=noted.keep) as client:
                client.journal.remember(privacy=noted.privacy, gap=noted.gap, owed=noted.owed)
        except BaseException:
            _delete_journals(self.directory, lambda number: number == self.number)
            if is_new:
                self.directory.rmdir()
            raise
        self.write()

    def write(self) -> None:
        """Write the settings and files made from them."""
        sources = {name: vars(source) for name, source in self.sources.items()}
        chain = None if self.chain is None else self.chain.as_dict()
        data = {name: value for name, value in vars(self).items() if name != "directory"}
        _write_json(self.directory / "settings.json", {**data, "sources": sources, "chain": chain})
        self.settle()

    def settle(self) -> None:
        """Write files made from the settings, and delete earlier lists' journals: a kill may have prevented it."""
        if self.server is None:
            _write_json(self.directory / "urls.json", {name: source.url for name, source in self.sources.items()})
        lines = (
            f'<outline type="rss" text={quoteattr(plain(source.title))} xmlUrl={quoteattr(self.address(name))}/>'
            for name, source in self.sources.items()
        )
        head = '<?xml version="1.0" encoding="UTF-8"?>\n<opml version="2.0"><head><title>onoff</title></head><body>'
        write_atomically(self.feeds, "\n".join([head, *lines, "</body></opml>\n"]).encode())
        _delete_journals(self.directory, lambda number: number != self.number)

    def address(self, name: str) -> str:
        """URL of a source at the proxy."""
        return f"http://127.0.0.1:{self.port}/{quote(name, safe='')}"

    def change(
        self,
        added: Mapping[str, Source] = NONE,
        removed: Collection[str] = (),
        chain: Chain | None = None,
        promise: str | None = None,
        sensitive: Collection[str] = (),
    ) -> tuple[Self, Memory]:
        """Make the next set-up, with its own journal, and what the previous one noted. What is not given stays.

        Without a `chain` the public one is taken over for the new list. Habits being learned are
        learned anew. If everything was asked for, it still is, unless a chain or the promise "past" is given.
        """
        old = UnknownChain(tuple(self.sources))
        for name in removed:
            old.index(name)
        stays = {name: source for name, source in self.sources.items() if name not in removed}
        sources = dict(sorted({**stays, **added}.items()))
        hidden = tuple(sensitive) or tuple(name for name in self.sensitive if name in sources)
        memory, known, all_for_ever = Memory(), self.chain, self.promise == "all"
        if self.journal.exists():
            found = snapshot(self.journal)
            memory, all_for_ever = found.memory, found.public["habits"]["stage"] == "all"
            known = None if all_for_ever else used_chain(self.journal)
        if chain is None and known is not None and promise != "all":
            chain = with_sources(known, tuple(sources))
        else:  # the switch was for other habits
            memory = replace(memory, privacy=None)
        if promise is None:
            promise = "all" if chain is None and (all_for_ever or hidden) else "past"
        number = next_number(self.directory)
        return replace(self, sources=sources, promise=promise, sensitive=hidden, chain=chain, number=number), memory


def default_directory() -> Path:
    """Find the default directory: with the user's state."""
    return default_journal().with_name("proxy")


def has_setup(directory: Path) -> bool:
    return (directory / "settings.json").exists()


def next_number(directory: Path) -> int:
    """Find an unused journal number."""
    return 1 + max(_journals(directory).values(), default=0)


@contextmanager
def lock_journals(directory: Path) -> Iterator[None]:
    """Hold the journals of a directory. Raises `JournalLocked` if a proxy runs with one of them."""
    with ExitStack() as held:
        for number in set(_journals(directory).values()):
            try:
                held.callback(RollbackGuard(directory / f"journal-{number}").close)
            except JournalLocked:
                raise JournalLocked(f"{directory}: a proxy is running with it: stop the proxy first") from None
        yield


def _journals(directory: Path) -> dict[Path, int]:
    """List all journals, with their numbers."""
    found = {file: OURS.fullmatch(file.name) for file in directory.glob("journal-*")}
    return {file: int(match[1]) for file, match in found.items() if match is not None}


def _delete_journals(directory: Path, which: Callable[[int], bool]) -> None:
    for file, number in _journals(directory).items():
        if which(number):
            file.unlink(missing_ok=True)


def _write_json(file: Path, data: object) -> None:
    write_atomically(file, json.dumps(data, indent=2, ensure_ascii=False).encode() + b"\n")


def with_sources(chain: Chain, names: Sequence[str]) -> Chain:
    """Adapt the chain to the sources called `names`, in this order; a function of chain and names alone.

    Between sources that stay, P(y | z) keeps its ratios. States with a removed source go, too. Each row
    counts weight times P transitions to each source that stays, and one to each new source. The row
    after a new source has the shares of all requests. A chain stated as exact stays so if it only loses sources.
    With a new source it is an estimate: each row of the stated one then counts as 10 transitions for each source.
    """
    if tuple(names) == chain.names:
        return chain
    stays = [x for x in range(chain.n) if chain.names[x] in names]
    old = [z for z, state in enumerate(chain.states) if set(state) <= set(stays)]
    place = {x: names.index(chain.names[x]) for x in stays}
    new = [x for x in range(len(names)) if x not in place.values()]
    weight = np.full(len(chain.P), float(FEW * chain.n)) if chain.weight is None else chain.weight
    counts = np.zeros((len(old) + len(new), len(names)))
    counts[: len(old), list(place.values())] = (weight[:, None] * chain.P)[np.ix_(old, stays)]
    counts[: len(old), new] = SEEN
    single = counts[: len(stays)].sum(axis=0)  # the rows after the last request alone stand first
    shares = (single + 0.5) / (single.sum() + len(names) / 2)
    invented = counts.sum(axis=1) == 0  # also where all went that could follow
    counts[invented] = UNKNOWN * shares
    total = counts.sum(axis=1)
    states = [tuple(place[x] for x in chain.states[z]) for z in old] + [(x,) for x in new]
    exact = chain.weight is None and not invented.any()
    return Chain(counts / total[:, None], names, None if exact else np.maximum(total, SEEN), states)

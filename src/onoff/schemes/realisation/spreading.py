"""Who looks at many independent blocks of contexts: threads or processes of this machine, or whoever else is appointed.

Makers of laws say what is to be done, `work(shared, item)` for every item, and what suits this machine. A caller with a
cluster puts its own way in place of that (`computed_by`). The results are the same.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Any, TypeVar

Shared = TypeVar("Shared")
Item = TypeVar("Item")
Result = TypeVar("Result")
Work = Callable[[Shared, Item], Result]
Way = Callable[[Work[Any, Any, Any], Any, Sequence[Any]], Generator[Any, None, None]]

THREADS = 2  # sparse products release the interpreter, but soon fill the memory's bandwidth

_appointed: ContextVar[Way | None] = ContextVar("appointed", default=None)


def spread(
    work: Work[Shared, Item, Result], shared: Shared, items: Sequence[Item], here: Way
) -> Generator[Result, None, None]:
    """`work(shared, item)` for every item, in their order: by whoever was appointed, or else as `here` says.

    `work` is a function of a module. Whoever stops early closes the generator, which ends what is still in work.
    """
    return (_appointed.get() or here)(work, shared, items)


@contextmanager
def computed_by(way: Way) -> Iterator[None]:
    """Appoint another way to compute, for what is planned in this context."""
    before = _appointed.set(way)
    try:
        yield
    finally:
        _appointed.reset(before)


def in_processes(
    work: Work[Shared, Item, Result], shared: Shared, items: Sequence[Item]
) -> Generator[Result, None, None]:
    """On all cores. For work that holds the interpreter, such as flows."""
    from joblib import Parallel, delayed

    found = Parallel(n_jobs=-1, return_as="generator")(delayed(work)(shared, item) for item in items)
    try:
        for result in found:  # noqa: UP028 (`yield from` would close it with a warning)
            yield result
    finally:
        with warnings.catch_warnings(action="ignore"):  # stopped early: joblib would tell that work is lost
            found.close()


def in_threads(
    work: Work[Shared, Item, Result], shared: Shared, items: Sequence[Item]
) -> Generator[Result, None, None]:
    """In threads of this process. For work that releases the interpreter. Only a few items are begun ahead."""
    waiting = iter(items)
    with ThreadPoolExecutor(THREADS) as pool:
        begun = [pool.submit(work, shared, item) for item in islice(waiting, 2 * THREADS)]
        try:
            while begun:
                result = begun.pop(0).result()
                begun += [pool.submit(work, shared, item) for item in islice(waiting, 1)]
                yield result
        finally:
            for one in begun:
                one.cancel()

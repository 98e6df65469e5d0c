"""Spread independent calls over the cores of this machine or over a Dask cluster, by joblib.

`joblib.Parallel` in the library (`onoff.schemes`) uses the backend that `use_workers` chooses. So a single large plan
is divided as well as many small ones.
"""

from __future__ import annotations

import logging
import os
import signal
import time
import warnings
from _thread import interrupt_main
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, TypeVar

from onoff.errors import ClusterError
from onoff.extras import need

Result = TypeVar("Result")
MOST = "LOKY_MAX_CPU_COUNT"  # the variable by which joblib's processes are limited
CONNECT = 10.0  # seconds to reach a scheduler, and then to see a first worker


@contextmanager
def use_workers(jobs: int | None = None, dask: str | None = None) -> Iterator[None]:
    """Compute with `jobs` processes (all cores if None), or with the workers of the Dask scheduler at this address.

    Raises `ClusterError` if the processes or the cluster are lost.
    """
    from joblib import parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    if dask is not None:
        with _cluster(dask):
            yield
        return
    before = os.environ.get(MOST)
    os.environ[MOST] = str(jobs or before or os.cpu_count())  # for the parts of a call: they take all that there are
    try:
        with parallel_config("loky", n_jobs=jobs or -1, inner_max_num_threads=1, initializer=_ignore_interrupts):
            yield
    except BrokenProcessPool:
        raise ClusterError(
            "a process that computed was killed, perhaps for want of memory: what was finished is kept; "
            "call again, with fewer --jobs"
        ) from None
    finally:
        os.environ.pop(MOST)
        os.environ |= {} if before is None else {MOST: before}


def compute(work: Callable[..., Result], calls: Sequence[tuple[Any, ...]]) -> Generator[tuple[int, Result], None, None]:
    """Call `work(*arguments)` for all arguments; yield (index of the call, result) in the order in which calls end.

    A single call, or all calls if there is one process, run here.
    """
    from joblib import Parallel, delayed, effective_n_jobs

    if len(calls) < 2 or effective_n_jobs() < 2:
        for index, arguments in enumerate(calls):
            yield index, work(*arguments)
        return
    # A batch would come back as one, and calls that wait for a process make loky fail when it is stopped.
    parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    # Arguments are one tuple, which the Dask backend sends along: data that it scatters is lost with its worker.
    found = parallel(delayed(_call)((index, work, arguments)) for index, arguments in enumerate(calls))
    try:
        for item in found:  # noqa: UP028 (`yield from` would close it with a warning)
            yield item
    finally:
        with warnings.catch_warnings(action="ignore"):  # stopped early: joblib would tell that work is lost
            found.close()


def _call(numbered: tuple[int, Callable[..., Result], tuple[Any, ...]]) -> tuple[int, Result]:
    index, work, arguments = numbered
    return index, work(*arguments)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent of a process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _cluster(address: str) -> Iterator[None]:
    """Compute on a scheduler's cluster. Cancel at the end what is not finished."""
    need("dask", "a Dask cluster")
    from distributed import Client
    from joblib import parallel_config

    for name in ("distributed", "distributed.client"):  # what matters comes back as an error of ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)  # chains are large
    try:
        client = Client(address, timeout=CONNECT)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"{address}: no Dask scheduler can be reached ({error}); is `dask scheduler` running?"
        ) from None
    with client, _translate_errors(client), parallel_config("dask", client=client, wait_for_workers_timeout=CONNECT):
        yield


@contextmanager
def _translate_errors(client: Any) -> Iterator[None]:
    """Turn a failure of the cluster into one `ClusterError`.

    joblib waits for ever for work whose workers died. So a thread watches the cluster, and interrupts this one.
    """
    from concurrent.futures import CancelledError

    from distributed import KilledWorker

    lost: list[str] = []
    done = Event()
    watch = Thread(target=_watch, args=(client, lost, done), daemon=True)
    watch.start()
    try:
        try:
            yield
        finally:  # the watch may interrupt while another error is on its way: that is caught below, too
            done.set()
            watch.join()
            time.sleep(0)
    except (TimeoutError, KilledWorker, CancelledError, OSError, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and not lost:
            raise
        what = lost[0] if lost else f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        raise ClusterError(
            f"{client.scheduler.address}: the Dask cluster failed ({what}): what was finished is kept; call again"
        ) from None


def _watch(client: Any, lost: list[str], done: Event) -> None:
    """Interrupt the main thread once work has failed with its workers, or no worker was there for CONNECT seconds."""
    seen = time.monotonic()
    while not done.wait(CONNECT / 10):
        if client.ncores():
            seen = time.monotonic()
        if any(state.status == "error" for state in list(client.futures.values())):
            lost.append("workers died with their work")
        elif time.monotonic() > seen + CONNECT:
            lost.append("no worker is left")
        if lost:
            interrupt_main()
            return

"""Independent cells of work on all cores of this machine, or on a Dask cluster; results come as they finish.

The caller keeps each result before it asks for the next one: whatever ends the run, only cells in work are lost.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

from onoff import __version__
from onoff.errors import ClusterError, OnoffError
from onoff.extras import need

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

CONNECT = 10.0  # seconds to reach a scheduler
NO_WORKERS = 30.0  # seconds without any worker before we give up
LOOK = 1.0  # seconds between two looks at the cluster, or at the parent process


@dataclass(frozen=True)
class Failed:
    """The result of a cell that ended in an error: the error in words."""

    error: str


def compute(
    work: Callable[..., Result],
    cells: Mapping[Key, tuple[Any, ...]],
    jobs: int | None = None,
    dask: str | None = None,
    *,
    divide: bool = False,
) -> Generator[tuple[Key, Result | Failed], None, None]:
    """`work(*arguments)` for every cell {key: arguments}, as (key, result) in the order in which they finish.

    `work` is a function of a module that workers can import; arguments go to them by value. `jobs` processes (all cores
    if None) compute here, with one BLAS thread each; a single job, or a single cell, stays in this process. `dask` is
    the address of a scheduler, whose workers then do all. With `divide` a cell is large: if there are fewer cells than
    threads of the cluster, each is computed here, one after the other, by `work(*arguments, spread=)`, whose parts all
    workers do (`onoff.schemes.Task`). An error of a cell is its result, `Failed`. Raises `ClusterError` if the
    processes or the cluster are lost.
    """
    if jobs is not None and jobs < 1:
        raise ClusterError(f"{jobs} processes cannot compute anything: at least 1 is needed")
    keys, calls = list(cells), list(cells.values())
    if dask is not None:
        found = _on_dask(work, calls, dask, divide)
    else:
        processes = min(jobs or _cores(), len(calls))
        found = _in_processes(work, calls, processes) if processes > 1 else _here(work, calls)
    try:
        for index, result in found:
            yield keys[index], result
    finally:
        found.close()


def _cores() -> int:
    from joblib import cpu_count

    return int(cpu_count())


def _here(work: Callable[..., Result], calls: list[tuple[Any, ...]]) -> Generator[tuple[int, Result | Failed]]:
    for index, arguments in enumerate(calls):
        yield index, _outcome(work, arguments)


def _in_processes(
    work: Callable[..., Result], calls: list[tuple[Any, ...]], processes: int
) -> Generator[tuple[int, Result | Failed]]:
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import BrokenProcessPool

    with parallel_config(
        backend="loky", inner_max_num_threads=1, initializer=_follow, initargs=(os.getpid(),), n_jobs=processes
    ):
        # A batch would come back as one, and cells that wait for a process make loky fail when it is stopped.
        parallel = Parallel(return_as="generator_unordered", batch_size=1, pre_dispatch="n_jobs")
    with _interrupts_held_back():
        found = parallel(delayed(_numbered)(index, work, arguments) for index, arguments in enumerate(calls))
    try:
        for item in found:  # noqa: UP028 (`yield from` would close it with a warning)
            yield item
    except BrokenProcessPool:
        raise ClusterError(
            "a process that computed was killed, perhaps for want of memory: what was finished is kept; "
            "call again, with fewer --jobs"
        ) from None
    finally:
        with warnings.catch_warnings(action="ignore"):  # stopped early: joblib would tell that work is lost
            found.close()


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Hold SIGINT back while processes start. They never see it: half started they would die with a traceback."""
    from multiprocessing import resource_tracker

    from joblib.externals.loky.backend import resource_tracker as of_joblib

    for tracker in (resource_tracker, of_joblib):  # each would be started with the first of them, and lift the block
        tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _on_dask(
    work: Callable[..., Result], calls: list[tuple[Any, ...]], address: str, divide: bool
) -> Generator[tuple[int, Result | Failed]]:
    """Give the cluster whole cells, or the parts of one after the other.

    Arguments travel with their cell and are never scattered: scattered data would die with the worker that has it.
    """
    with _cluster(address) as client:
        with _explained(address):
            few = len(calls) < max(2, sum(client.nthreads().values()))
        if divide and few:
            for index, arguments in enumerate(calls):
                yield index, _outcome(partial(work, spread=partial(_parts_on, client, address)), arguments)
            return

        def submit(arguments: tuple[Any, ...]) -> Any:
            return client.submit(_remote_outcome, work, arguments, __version__, pure=False)

        with closing(_finished(client, address, submit, calls)) as finished:
            for index, task in finished:
                with _explained(address):
                    result = _result(task)
                yield index, result


def _parts_on(
    client: Any, address: str, work: Callable[[Any], Result], parts: Sequence[tuple[Any, Any]]
) -> Generator[Result, None, None]:
    """`work(part)` for all parts on the cluster, in their order. A part is what all of them share, and its own share.

    What they share is the result of a task, copied to all workers: each would else fetch it only when it has nothing
    else to do. If it is lost with its workers, the scheduler makes it anew.
    """
    shared = parts[0][0]
    [(_, given)] = _finished(client, address, lambda whole: client.submit(_given, whole, pure=False), [shared])
    with _explained(address):
        client.replicate([given])

    def submit(part: tuple[Any, Any]) -> Any:
        return client.submit(_remote_part, work, given, part[1], __version__, pure=False)

    done: dict[int, Result] = {}
    following = 0
    with closing(_finished(client, address, submit, parts)) as finished:
        for index, task in finished:
            with _explained(address):
                done[index] = task.result()
            while following in done:
                yield done.pop(following)
                following += 1


def _finished(
    client: Any, address: str, submit: Callable[[Any], Any], calls: Sequence[Any]
) -> Generator[tuple[int, Any], None, None]:
    """Give the cluster a few calls more than it has threads; each with its task as it is finished, or has failed.

    What a dying worker had is done again by others. Raises `ClusterError` if there is no worker for a while.
    """
    from distributed import wait

    waiting = iter(enumerate(calls))
    at_work: dict[Any, int] = {}
    seen = time.monotonic()
    while True:
        with _explained(address):
            threads = sum(client.nthreads().values())
            for index, call in islice(waiting, max(0, 2 * threads + 2 - len(at_work))):
                at_work[submit(call)] = index
        if not at_work:
            return
        seen = time.monotonic() if threads else seen
        if time.monotonic() > seen + NO_WORKERS:
            raise ClusterError(
                f"{address}: no worker for {NO_WORKERS:.0f} seconds: what was finished is kept; "
                f"start workers with `dask worker {address}` and call again"
            )
        try:
            with _explained(address):
                finished = wait(list(at_work), timeout=LOOK, return_when="FIRST_COMPLETED").done  # type: ignore[no-untyped-call]
        except TimeoutError:
            continue
        for task in finished:
            yield at_work.pop(task), task


def _cluster(address: str) -> Any:
    """A client of the scheduler at this address. Closing it cancels what is not finished."""
    need("dask", "a Dask cluster")
    from distributed import Client

    for name in ("distributed", "distributed.client"):  # what matters comes back as an error of ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", message="Sending large graph", category=UserWarning)  # chains are large
    try:
        if not address:
            raise ValueError("the address is empty")
        return Client(address, timeout=CONNECT)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ClusterError(
            f"{address}: no Dask scheduler can be reached ({error}); is `dask scheduler` running?"
        ) from None


@contextmanager
def _explained(address: str) -> Iterator[None]:
    """Turn any failure of the cluster into one `ClusterError`. Timeouts pass through: waiting is normal."""
    try:
        yield
    except (TimeoutError, ClusterError):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        raise ClusterError(
            f"{address}: the Dask cluster failed ({what}): what was finished is kept; call again"
        ) from None


def _result(task: Any) -> Any:
    """The result of a cell. A cell that kills every worker that takes it has failed; the others go on."""
    from distributed import KilledWorker

    try:
        return task.result()
    except KilledWorker:
        return Failed(
            "every worker that had it died, for want of memory or because of another cell there: run it again"
        )


def _given(shared: Any) -> Any:
    """What all parts of a cell share, on the worker that has it first."""
    return shared


def _remote_part(work: Callable[[Any], Result], shared: Any, own: Any, version: str) -> Result:
    _check_version(version)
    with threadpool_limits(limits=1, user_api="blas"):
        return work((shared, own))


def _remote_outcome(work: Callable[..., Result], arguments: tuple[Any, ...], version: str) -> Result | Failed:
    _check_version(version)
    with threadpool_limits(limits=1, user_api="blas"):
        return _inner_sequential(work, arguments)


def _check_version(version: str) -> None:
    if version != __version__:
        raise ClusterError(f"a worker has onoff {__version__}, this is {version}: install the same version there")


def _numbered(index: int, work: Callable[..., Result], arguments: tuple[Any, ...]) -> tuple[int, Result | Failed]:
    return index, _inner_sequential(work, arguments)


def _inner_sequential(work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result | Failed:
    """Use one core inside a cell, since the cells share all cores already."""
    from joblib import parallel_config

    with parallel_config(backend="sequential"):
        return _outcome(work, arguments)


def _outcome(work: Callable[..., Result], arguments: tuple[Any, ...]) -> Result | Failed:
    try:
        return work(*arguments)
    except ClusterError:
        raise  # the cluster is lost, not this cell
    except OnoffError as error:
        return Failed(str(error))
    except Exception as error:  # not foreseen: say where
        place = traceback.extract_tb(error.__traceback__)[-1]
        return Failed(f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}, line {place.lineno})")


def _follow(parent: int) -> None:
    """Prepare a computing process. It leaves Ctrl-C to its parent, and ends when the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()

"""A real Dask cluster for tests: a scheduler and workers, each a process of its own that may be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from joblib import Parallel, delayed

from onoff import plan
from ports import free_port

try:
    import distributed
except ImportError:
    distributed = None

DASK = (sys.executable, "-m", "dask")
needs_dask = pytest.mark.skipif(distributed is None, reason="distributed is not installed")


def slowly(chain, lag, scheme):
    """Work that lasts long enough to kill a worker in the middle."""
    time.sleep(0.1)
    return plan(chain, lag, scheme)


def who_does(parts):
    """A call with parts of its own, which joblib spreads: for each part who did it."""
    return Parallel(n_jobs=-1)(delayed(done_by)(part) for part in range(parts))


def done_by(part):
    time.sleep(0.1)
    return part, os.getpid()


class DaskCluster:
    """`dask scheduler` and workers without a nanny: one that is killed stays dead."""

    def __init__(self, directory: Path) -> None:
        self.directory, port = directory, free_port()
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._start("scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        self.workers: list[subprocess.Popen[bytes]] = []
        self.ready(0)

    def ready(self, workers: int) -> None:
        """Start as many as are missing, and wait until all of them have joined."""
        missing = workers - sum(worker.poll() is None for worker in self.workers)
        self.workers += [self._worker() for _ in range(missing)]
        with distributed.Client(self.address, timeout=180) as client:
            if workers:
                client.wait_for_workers(workers, timeout=180)

    def kill_workers(self, most: int) -> None:
        for worker in [worker for worker in self.workers if worker.poll() is None][:most]:
            worker.kill()
            worker.wait(timeout=120)

    def _worker(self) -> subprocess.Popen[bytes]:
        return self._start("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard")

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.directory / "dask.log").open("ab") as log:
            streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            few = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1"}  # workers that a task may cost
            env = {**os.environ, **few, "PYTHONPATH": str(Path(__file__).parent)}  # for the functions above
            return subprocess.Popen([*DASK, *arguments], cwd=self.directory, env=env, **streams)

    def close(self) -> None:
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait(timeout=120)

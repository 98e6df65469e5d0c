"""Cells on this machine and on a Dask cluster: the same results, and only cells in work are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from operator import truediv
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

from daskcluster import DaskCluster, die_or_not, needs_dask, slowly, who_does
from onoff import Chain, plan
from onoff.apps import workers as cells
from onoff.apps.workers import Failed, compute
from onoff.errors import ChainError, ClusterError
from onoff.schemes.realisation import realise

CHAIN = Chain(np.random.default_rng(3).dirichlet(np.ones(5), 5))


@pytest.fixture(scope="module")
def clusters():
    found = []
    yield found
    for one in found:
        one.close()


@pytest.fixture
def cluster(clusters, tmp_path):
    """One for all tests until a test ends its scheduler; each says how many workers it needs and may kill them."""
    if not clusters or clusters[-1].scheduler.poll() is not None:
        clusters.append(DaskCluster(tmp_path, workers=0))
    return clusters[-1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_plans_made_elsewhere_are_the_same(jobs):
    found = dict(compute(plan, {lag: (CHAIN, lag, "paper") for lag in (1, 2, 3)}, jobs))
    assert found == {lag: plan(CHAIN, lag, "paper") for lag in (1, 2, 3)}


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_is_the_result_of_its_cell_only(jobs):
    found = dict(compute(truediv, {"good": (1, 2), "bad": (1, 0), "also good": (3, 4)}, jobs))
    assert (found["good"], found["also good"]) == (0.5, 0.75)
    assert "ZeroDivisionError: division by zero" in found["bad"].error
    [(_, failed)] = compute(Chain.symmetric, {"few": (1, 0.5)}, jobs)
    with pytest.raises(ChainError) as error:
        Chain.symmetric(1, 0.5)
    assert failed == Failed(str(error.value))


def test_results_come_as_they_finish_not_in_order():
    with closing(compute(time.sleep, {"long": (60,), "short": (0,)}, jobs=2)) as found:
        assert next(found) == ("short", None)


def test_a_process_that_is_killed_is_an_error_that_says_what_to_do():
    with pytest.raises(ClusterError, match="what was finished is kept"):
        list(compute(os._exit, {1: (1,), 2: (1,)}, jobs=2))


def test_no_processes_are_refused():
    with pytest.raises(ClusterError, match="at least 1"):
        next(compute(os.getpid, {1: ()}, jobs=0))


def test_processes_leave_ctrl_c_to_their_parent_from_their_first_moment_on():
    """It is blocked, not only ignored: a handler is set once Python and joblib are imported, a block is inherited."""
    found = dict(compute(signal.pthread_sigmask, dict.fromkeys(range(3), (signal.SIG_BLOCK, ())), 2))
    assert found == {key: {signal.SIGINT} for key in range(3)}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_processes_end_with_their_parent(tmp_path):
    """kill -9 of the parent leaves no process behind, though each would sleep for a minute."""
    code = (
        "import sys, time; from onoff.apps.workers import compute; from subprocess import call;"
        "list(compute(call, {i: (['sh', '-c', 'echo $PPID > ' + sys.argv[1] + '/' + str(i) + '; exec sleep 30'],)"
        " for i in range(8)}, 2))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, tmp_path])
    wait_until(lambda: len([file for file in tmp_path.iterdir() if file.read_text()]) == 2)
    children = [int(file.read_text()) for file in tmp_path.iterdir()]
    parent.kill()
    parent.wait(timeout=120)
    wait_until(lambda: not any(alive(child) for child in children))
    assert len(list(tmp_path.iterdir())) == 2


@needs_dask
def test_a_worker_is_killed_and_no_result_is_lost(cluster):
    cluster.have(2)
    wanted = {lag: (CHAIN, lag, "paper") for lag in range(1, 25)}
    found = {}
    with closing(compute(slowly, wanted, dask=cluster.address)) as results:
        for lag, result in results:
            assert lag not in found
            found[lag] = result
            if len(found) == 5:
                cluster.kill_workers(1)
    assert found == {lag: plan(CHAIN, lag, "paper") for lag in wanted}


@needs_dask
def test_the_parts_of_one_cell_are_done_by_all_workers_and_a_killed_one_loses_nothing(cluster):
    cluster.ready(2)
    [(_, found)] = compute(who_does, {"one": (12,)}, dask=cluster.address, divide=True)
    assert [(part, shared) for part, _, shared in found] == [(part, 7 * part) for part in range(12)]
    workers = {process for _, process, _ in found}
    assert len(workers) == 2
    assert os.getpid() not in workers
    killer = Timer(0.5, cluster.kill_workers, (1,))
    killer.start()
    [(_, found)] = compute(who_does, {"one": (12,)}, dask=cluster.address, divide=True)
    killer.join()
    assert [part for part, _, _ in found] == list(range(12))


@needs_dask
def test_a_divided_plan_is_the_same_and_was_not_computed_here(cluster, monkeypatch):
    """Screens and flows leave this process; what they say is what they would have said here."""
    cluster.ready(2)
    chain = Chain(np.random.default_rng(3).dirichlet(np.ones(40), 40))
    here = plan(chain, 2, "comb")
    monkeypatch.setattr(realise, "on_this_machine", lambda *_: pytest.fail("computed here"))
    [(_, found)] = compute(plan, {2: (chain, 2, "comb")}, dask=cluster.address, divide=True)
    assert found == here


@pytest.mark.long
@needs_dask
def test_a_lost_cluster_is_not_the_failure_of_a_cell_that_it_divides(cluster, monkeypatch):
    monkeypatch.setattr(cells, "NO_WORKERS", 0.2)
    cluster.kill_workers(9)
    with pytest.raises(ClusterError, match="no worker for"):
        list(compute(who_does, {"one": (12,)}, dask=cluster.address, divide=True))


@needs_dask
def test_a_cell_that_kills_its_workers_fails_and_the_others_are_computed(cluster):
    """Two workers die over it (Dask then gives it up), the last one does the rest.

    Dask blames all cells that a worker had when it died, also one that waited behind the poison: a later run has it.
    """
    cluster.have(3)
    for _ in range(2):  # loaded everywhere: an innocent cell must not still be loading where the poison arrives
        assert len(dict(compute(die_or_not, dict.fromkeys(range(9), (False,)), dask=cluster.address))) == 9
    found = dict(compute(die_or_not, {"poison": (True,), "a": (False,), "b": (False,)}, dask=cluster.address))
    failed = {name: result for name, result in found.items() if isinstance(result, Failed)}
    assert "every worker that had it died" in failed.pop("poison").error
    found |= compute(die_or_not, dict.fromkeys(failed, (False,)), dask=cluster.address)
    assert (found["a"], found["b"]) == (7, 7)


@pytest.mark.long
@needs_dask
def test_when_all_workers_or_the_scheduler_are_gone_it_ends_soon(cluster, monkeypatch):
    cluster.have(1)
    found = compute(time.sleep, dict.fromkeys(range(100), (0.1,)), dask=cluster.address)
    assert next(found)[1] is None
    monkeypatch.setattr(cells, "NO_WORKERS", 1.0)
    cluster.kill_workers(9)
    with pytest.raises(ClusterError, match=r"no worker for 1 seconds.*dask worker tcp://"):
        list(found)
    monkeypatch.setattr(cells, "CONNECT", 5.0)
    monkeypatch.setattr(cells, "NO_WORKERS", 60.0)
    found = compute(time.sleep, {1: (0,), 2: (100,)}, dask=cluster.address)
    cluster.have(1)
    assert next(found) == (1, None)
    cluster.scheduler.kill()
    with pytest.raises(ClusterError, match="what was finished is kept"):
        next(found)


@needs_dask
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense", ""])
def test_a_wrong_address_is_said_to_be_one(address, monkeypatch):
    monkeypatch.setattr(cells, "CONNECT", 0.5)
    with pytest.raises(ClusterError, match="no Dask scheduler can be reached"):
        next(compute(os.getpid, {1: ()}, dask=address))


@needs_dask
def test_a_worker_of_another_version_is_refused():
    with pytest.raises(ClusterError, match="install the same version"):
        cells._remote_outcome(os.getpid, (), "0.0.1")


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition, timeout=60.0):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)

"""Calls on this machine and on a Dask cluster: the same results, and only what is in work is lost."""

from __future__ import annotations

import os
import time
from contextlib import closing

import numpy as np
import pytest
from joblib import Parallel, delayed

from daskcluster import DaskCluster, needs_dask, slowly, who_does
from onoff import Chain, plan
from onoff.apps import parallel
from onoff.apps.parallel import compute, use_workers
from onoff.errors import ClusterError

CHAIN = Chain(np.random.default_rng(3).dirichlet(np.ones(5), 5))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One for all tests; each says how many workers it needs and may kill them."""
    found = DaskCluster(tmp_path_factory.mktemp("dask"))
    yield found
    found.close()


@pytest.mark.parametrize("jobs", [1, 2])
def test_plans_made_elsewhere_are_the_same(jobs):
    with use_workers(jobs):
        found = dict(compute(plan, [(CHAIN, lag, "paper") for lag in (1, 2, 3)]))
    assert found == {lag - 1: plan(CHAIN, lag, "paper") for lag in (1, 2, 3)}


def test_results_come_as_they_finish_not_in_order():
    with use_workers(2), closing(compute(time.sleep, [(60,), (0,)])) as found:
        assert next(found) == (1, None)


def test_a_single_call_is_made_here_so_that_its_own_parts_can_be_spread():
    with use_workers(2):
        assert list(compute(os.getpid, [()])) == [(0, os.getpid())]


def test_the_parts_of_a_call_take_no_more_processes_than_were_asked_for():
    """As those of a large plan (`onoff.schemes.realise`)."""
    with use_workers(1):
        assert set(Parallel(n_jobs=-1)(delayed(os.getpid)() for _ in range(3))) == {os.getpid()}


def test_a_process_that_is_killed_is_an_error_that_says_what_to_do():
    with pytest.raises(ClusterError, match="what was finished is kept"), use_workers(2):
        list(compute(os._exit, [(1,), (1,)]))


@needs_dask
def test_a_worker_is_killed_and_no_result_is_lost(cluster):
    cluster.ready(2)
    found = {}
    with use_workers(dask=cluster.address):
        for index, result in compute(slowly, [(CHAIN, lag, "paper") for lag in range(1, 15)]):
            assert index not in found
            found[index] = result
            if len(found) == 5:
                cluster.kill_workers(1)
    assert found == {lag - 1: plan(CHAIN, lag, "paper") for lag in range(1, 15)}


@needs_dask
def test_the_parts_of_a_single_call_are_done_by_all_workers(cluster):
    """As those of a large plan: `joblib.Parallel` in the library uses the cluster."""
    cluster.ready(2)
    with use_workers(dask=cluster.address):
        [(_, found)] = compute(who_does, [(12,)])
    assert [part for part, _ in found] == list(range(12))
    workers = {process for _, process in found}
    assert len(workers) == 2
    assert os.getpid() not in workers


@needs_dask
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense"])
def test_a_wrong_address_is_said_to_be_one(address, monkeypatch):
    monkeypatch.setattr(parallel, "CONNECT", 0.5)
    with pytest.raises(ClusterError, match="no Dask scheduler can be reached"), use_workers(dask=address):
        pass


@needs_dask
def test_if_all_workers_die_a_sentence_says_so(cluster, monkeypatch):
    """joblib would wait for ever."""
    monkeypatch.setattr(parallel, "CONNECT", 2.0)
    cluster.ready(2)

    def lose_all_workers():
        with use_workers(dask=cluster.address):
            for _ in compute(slowly, [(CHAIN, lag, "paper") for lag in range(1, 60)]):
                cluster.kill_workers(9)

    with pytest.raises(ClusterError, match=r"(no worker is left|workers died).*what was finished is kept"):
        lose_all_workers()

"""The front door: files or objects, what the journal remembers, and who ends the planner."""

from __future__ import annotations

import asyncio
import json

import pytest

import onoff
from clientkit import BODIES, CHAIN, scene
from onoff import connect
from onoff.client.status import status
from onoff.errors import ChainError, OnoffError
from onoff.plans.planner import Planner


def where(world, as_file=False):
    """How the server is named: by its address, or by its URLs, in a file or not."""
    if world.kind == "own" or not as_file:
        return world.address()
    (world.directory / "urls.json").write_text(json.dumps(world.origin.urls(world.server)))
    return {"urls": world.directory / "urls.json"}


def get(source, *arguments, **options):
    async def run():
        async with connect(*arguments, delay=0.001, background=False, **options) as client:
            return await client.get(source)

    return asyncio.run(run())


def test_chain_and_urls_may_be_files_or_objects(world, tmp_path):
    CHAIN.save(tmp_path / "chain.json")
    common = {"plans": tmp_path / "plans", "promise": "both"}
    for i, chain in enumerate((CHAIN, str(tmp_path / "chain.json"))):
        options = {**where(world, as_file=i > 0), "journal": tmp_path / f"j{i}", **common}
        assert get("news", chain, **options).body == BODIES["news"]


def test_what_was_given_once_is_remembered(world, tmp_path):
    options = {"journal": tmp_path / "j", "plans": tmp_path / "plans"}
    get("news", CHAIN, **where(world, as_file=True), **options)
    assert get("sports", **options).body == BODIES["sports"]
    assert status(tmp_path / "j", plans=tmp_path / "plans").chain == CHAIN


def test_nothing_is_started_or_written_before_the_client_is_used(tmp_path):
    client = connect(CHAIN, server="http://127.0.0.1:1", journal=tmp_path / "j", plans=tmp_path / "plans")
    assert client.planner is None
    assert not list(tmp_path.iterdir())


def test_urls_that_were_given_as_objects_are_not_remembered(tmp_path):
    with scene("any", tmp_path) as world:
        options = {"journal": tmp_path / "j", "plans": tmp_path / "plans"}
        get("news", CHAIN, **where(world), **options)
        with pytest.raises(OnoffError, match="knows no server yet"):
            get("news", **options)
        with pytest.raises(OnoffError, match=r"there is no such journal yet: give --server"):
            get("news", journal=tmp_path / "k")


def test_the_client_ends_the_planner_that_it_made_and_no_other(tmp_path):
    async def run(**options):
        async with connect(
            CHAIN, server=world.server.url, journal=tmp_path / "j", promise="both", delay=0.001, **options
        ) as client:
            return client.planner

    with scene("own", tmp_path) as world:
        planner = asyncio.run(run(plans=tmp_path / "plans"))
        assert planner._worker is None  # ended and forgotten, whether it had begun or not
        with Planner(CHAIN, tmp_path / "other") as given:
            assert asyncio.run(run(plans=given)) is given
            assert given._worker is not None or not given._background
        with pytest.raises(ChainError, match="another chain"), Planner(onoff.Chain.symmetric(3, 0.5)) as foreign:
            connect(CHAIN, server=world.server.url, journal=tmp_path / "j", plans=foreign)

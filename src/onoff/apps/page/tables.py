"""The plans of the page: all of them have tables, from which the server's belief is computed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from onoff.model.chain import Chain
from onoff.plans.plan import Plan
from onoff.plans.planner import Planner


def tables(chain: Chain, directory: Path) -> Planner:
    """A planner that gives out plans with a table as soon as there is one."""
    return Planner(chain, directory, usable=lambda plan: plan.kind == "table")


async def ready(planner: Planner, lag: int, seconds: float) -> Plan:
    """Like `Planner.wait`, but it can be cancelled: no thread is left that would start the background again."""
    deadline = time.monotonic() + seconds
    while True:
        plan = planner.best(lag)
        if planner.finished(lag) or time.monotonic() > deadline:
            return plan
        await asyncio.sleep(0.05)

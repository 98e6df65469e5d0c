"""The plans of the page: all of them have tables."""

from __future__ import annotations

import asyncio
import time

from onoff.plans.base import Plan
from onoff.plans.planner import Planner
from onoff.plans.table import TablePlan


class Tables(Planner):
    """Only plans with a table, from which the server's belief is computed. They are ready before the first request."""

    def best(self, lag: int) -> Plan:
        super().best(lag)
        tables = (plan for _, plan in self._loaded.values() if plan.lag <= lag and isinstance(plan, TablePlan))
        return min(tables, key=lambda plan: (plan.cost, -plan.lag), default=self._first)

    async def ready(self, lag: int, seconds: float) -> Plan:
        """Like `wait`, but it can be cancelled: no thread is left that would start the background again."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            plan = self.best(lag)
            if self._reach >= lag:
                break
            await asyncio.sleep(0.05)
        return plan

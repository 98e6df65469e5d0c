"""The audit: what can the server learn? The referee never imports the player (schemes, planner, engine, client).

Plans and engines come in as objects, and are exhibits: the audit believes nothing they say, and checks their encoders
and draws. There are four front doors, each a function with one frozen result:

    audit_plan     Is this plan what it says?                                          `onoff audit plan`
    audit_log      Was every query drawn as the rules say, and what does a log tell?   `onoff audit log`
    audit_streams  What do all queries of a client tell?                               `onoff audit streams`
    audit_people   What leaks because people are not Markov?                           `onoff audit people`

Read `files`, `law`, `rows`, `rules`, `habits`, `replay` and, if there were races, `races`, in this order: the verdict
on the privacy of a log rests on them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onoff.audit.log import LogAudit, audit_log
    from onoff.audit.people import PeopleAudit, audit_people
    from onoff.audit.plan import PlanAudit, audit_plan
    from onoff.audit.streams import StreamAudit, audit_streams

__all__ = [
    "LogAudit", "PeopleAudit", "PlanAudit", "StreamAudit", "audit_log", "audit_people", "audit_plan", "audit_streams",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a front door at its first use."""
    if name not in __all__:
        raise AttributeError(f"module 'onoff.audit' has no attribute {name!r}")
    module = name.removeprefix("audit_").removesuffix("Audit").lower()
    return getattr(import_module(f"onoff.audit.{'streams' if module == 'stream' else module}"), name)

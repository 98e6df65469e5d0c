"""Is this plan what it says? `onoff audit plan`, and its front door in Python."""

from onoff.audit.plan.record import PlanFiles, plan_files
from onoff.audit.plan.verify import Verdict, audit_plan

__all__ = ["PlanFiles", "Verdict", "audit_plan", "plan_files"]

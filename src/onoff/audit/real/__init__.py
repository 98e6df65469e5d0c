"""What if people are not Markov? `onoff audit real`, and its front door in Python."""

from onoff.audit.real.auditing import RealAudit, audit_real
from onoff.audit.real.people import People, Split, people, split

__all__ = ["People", "RealAudit", "Split", "audit_real", "people", "split"]

"""What if people are not Markov? `onoff audit real`, and its front door in Python."""

from onoff.audit.real.auditing import RealAudit, audit_real
from onoff.audit.real.past import RealPast, audit_real_past
from onoff.audit.real.people import People, Split, people, split

__all__ = ["People", "RealAudit", "RealPast", "Split", "audit_real", "audit_real_past", "people", "split"]

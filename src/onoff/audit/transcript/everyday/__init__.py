"""What does a log of the everyday mode betray? `onoff audit transcript --record`, and its front door in Python."""

from onoff.audit.transcript.everyday.auditing import EverydayAudit, audit_everyday_transcript
from onoff.audit.transcript.everyday.laws import Laws, read_laws

__all__ = ["EverydayAudit", "Laws", "audit_everyday_transcript", "read_laws"]

"""What does a server's log betray? `onoff audit transcript`, and its front door in Python."""

from onoff.audit.transcript.auditing import Rules, TranscriptAudit, audit_transcript
from onoff.audit.transcript.certifying import Exhibits
from onoff.audit.transcript.evidence import Evidence, read_evidence

__all__ = ["Evidence", "Exhibits", "Rules", "TranscriptAudit", "audit_transcript", "read_evidence"]

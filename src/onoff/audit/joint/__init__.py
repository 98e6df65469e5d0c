"""What does a whole stream tell? `onoff audit joint` and `switching`, and their front doors in Python."""

from onoff.audit.joint.auditing import Effort, audit_joint, audit_mistaken
from onoff.audit.joint.mistaken import Mistaken
from onoff.audit.joint.switching import Switching, User, audit_switching
from onoff.audit.setting import Leakage

__all__ = ["Effort", "Leakage", "Mistaken", "Switching", "User", "audit_joint", "audit_mistaken", "audit_switching"]

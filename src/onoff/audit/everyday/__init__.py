"""The audit of the everyday promise, from recorded laws and encoders alone: own filter, own checks.

A law is what a client was ready to draw from at one OFF step, as it recorded it (`onoff.audit.everyday.record`). It
holds no secret. What the server believes follows by Bayes from laws and queries, over hidden pasts that are never
merged (`pasts`), and every law is checked against them (`checks`). A whole transcript is attacked going forward and
back (`beliefs`), and whole streams of an engine are enumerated (`auditing`). Nothing here knows how laws are made.
"""

from onoff.audit.everyday.auditing import Compared, audit_everyday, audit_everyday_mistaken
from onoff.audit.everyday.misfit import Misfit
from onoff.audit.everyday.streams import Streams, Told

__all__ = ["Compared", "Misfit", "Streams", "Told", "audit_everyday", "audit_everyday_mistaken"]

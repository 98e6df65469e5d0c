"""What the referee says of a log."""

from __future__ import annotations

from onoff.audit.law import Finding

__all__ = ["Finding"]

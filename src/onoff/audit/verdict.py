"""What the referee says of a replay: the first wrong step with what was expected there, and what was not checked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from onoff.audit.law import Finding

__all__ = ["BELIEVED", "Finding", "Verdict"]

BELIEVED = (
    "the journal's requests and numbers: a client that forges both alike is not found",
    "that statuses, announcements and the moments of requests do not depend on what is asked for",
)


@dataclass(frozen=True)
class Verdict:
    """The verdict on one stream.

    `findings` are in the order of their steps. `unchecked` has the steps that could not be made again, with the reason;
    they are neither right nor wrong, and without them all nothing is certified. `believed` is what every audit of this
    kind takes for granted, and `ignored` what nobody has looked at. Of `off` OFF steps `drawn` were made again, and
    their laws are within `rounding` of a perfectly private stream, all together.
    """

    steps: int
    off: int
    drawn: int
    rounding: float
    findings: tuple[Finding, ...]
    unchecked: tuple[tuple[int, str], ...]
    ignored: tuple[str, ...] = ()
    believed: tuple[str, ...] = BELIEVED

    @property
    def first(self) -> Finding | None:
        """The finding at the first wrong step; one without a step only if there is no other."""
        stepped = [finding for finding in self.findings if finding.step is not None]
        return next(iter([*stepped, *self.findings]), None)

    @property
    def passed(self) -> bool:
        """Whether every step was made again and nothing is wrong."""
        return not self.findings and not self.unchecked

    @property
    def word(self) -> str:
        """PASSED, FAILED, or NO VERDICT where nothing is wrong but not every step was checked."""
        if self.findings:
            return "FAILED"
        return "NO VERDICT" if self.unchecked else "PASSED"

    @property
    def gaps(self) -> tuple[str, ...]:
        """What was not checked, in words: steps by their reason, then what was not looked at."""
        reasons = Counter(reason for _, reason in self.unchecked)
        first = {reason: step for step, reason in reversed(self.unchecked)}
        steps = (
            f"{count} step{'s' * (count > 1)}, from step {first[reason]} on: {reason}"
            for reason, count in reasons.items()
        )
        return *steps, *self.ignored

    def __str__(self) -> str:
        """One line: the word, the first wrong step, and what was not checked."""
        first = self.first
        words = [f"AUDIT {self.word}"]
        if first is not None:
            where = "" if first.step is None else f"step {first.step}: "
            more = len(self.findings) - 1
            words[0] += f": {where}{first.rule}: {first.message}" + (f" (and {more} more)" if more else "")
        if self.gaps:
            words.append("NOT CHECKED: " + "; ".join(self.gaps))
        return "; ".join(words)

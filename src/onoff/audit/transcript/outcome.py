"""What an audit of a transcript comes to, in one line: what it says is what the exit code says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

PASSED, FAILED, NO_VERDICT = "PASSED", "FAILED", "NO VERDICT"


@dataclass(frozen=True)
class Outcome:
    """`word` is PASSED, FAILED or NO VERDICT, with the reasons for the last two.

    `untested` is what nobody looked at, though the verdict would need it to be about everything.
    """

    word: str
    reasons: tuple[str, ...] = ()
    untested: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return self.word == PASSED

    def __str__(self) -> str:
        reasons = f": {'; '.join(self.reasons)}" if self.reasons else ""
        untested = f"; NOT TESTED: {'; '.join(self.untested)}" if self.untested else ""
        return f"AUDIT {self.word}{reasons}{untested}"


def concluded(failed: Iterable[str | None], open_questions: Iterable[str | None], untested: Iterable[str]) -> Outcome:
    """The outcome, given what has `failed` and what had to be known and is not; None stands for nothing."""
    wrong = tuple(reason for reason in failed if reason)
    unknown = tuple(reason for reason in open_questions if reason)
    if wrong:
        return Outcome(FAILED, wrong, tuple(untested))
    return Outcome(NO_VERDICT if unknown else PASSED, unknown, tuple(untested))


def counted(count: int, thing: str, things: str | None = None) -> str | None:
    """`3 findings`; None if there are none."""
    return None if not count else f"{count} {thing if count == 1 else things or thing + 's'}"

"""The audit of a transcript of the everyday mode, as words and as a dictionary."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from typing import TYPE_CHECKING, Any

from onoff.apps.cli.audit.showing import IN_VAIN, UNTESTED, print_repeats, print_rules, rules_as_dict, warn
from onoff.apps.cli.audit.showjoint import bits
from onoff.apps.cli.output import print_table

if TYPE_CHECKING:
    from onoff.audit.transcript.everyday import EverydayAudit
    from onoff.audit.transcript.everyday.verdict import Told, Verdict
    from onoff.model.chain import Chain


def print_everyday(found: EverydayAudit, chain: Chain) -> None:
    """What the log told before and after private requests, ours beside naive, and what speaks against the client."""
    verdict, naive = found.verdict, found.naive
    warn(found.following)
    hidden = ", ".join(chain.names[x] for x in found.sensitive) or "none"
    print(f"{found.steps} steps of the everyday mode in the log, {found.off} of them OFF; sensitive sources: {hidden}")
    _print_told("private requests", verdict.private, naive.private)
    if verdict.open is not None and naive.open is not None:
        _print_told("OFF requests: which sensitive source was asked for, or none", verdict.open, naive.open)
    if verdict.happened is not None:
        happened = verdict.happened
        print(
            f"that a sensitive source was asked for at all: {happened.prior:.4f} by habits alone, "
            f"{happened.believed:.4f} believed at the end; a query moved it by {happened.moved:.1e} at most "
            "for the requests up to its own"
        )
    for note in found.notes[:3]:
        print(f"note: {note}")
    for finding in found.findings[:10]:
        print(f"finding: {finding}")
    if len(found.findings) > 10:
        print(f"and {len(found.findings) - 10} findings more")
    if found.remade is not None:
        print(f"{found.remade} of {found.off} laws are to the unit those that the installed version makes")
    if not found.recorded:
        print("there is no record: the laws were made again from the chain, the sensitive sources and the queries")
    print(f"naive client: {_outcome(naive)}")
    print(f"this log: {_words(found)}")
    print(UNTESTED if found.following is None else found.following.words())
    if found.unseen:
        print(f"steps that are not in the log, and were not looked at: {found.unseen}")
    print_repeats(found.repeats)
    if found.beside.lines:
        print(f"{found.beside.lines} queries of other streams are in the log: they were not attacked")
    source = "recorded laws" if found.recorded else "laws made again"
    print_rules(found.rules, made="statuses", source=source, passed=found.passed)
    print(found.outcome)


def _print_told(title: str, ours: Told, naive: Told) -> None:
    columns = (ours, naive)
    rows = [
        ("before it, mean (NOT promised)", *(bits(told.before) for told in columns)),
        ("by its own query, mean (promised: 0)", *(bits(told.own) for told in columns)),
        ("at and after it, mean (promised: 0)", *(bits(told.after) for told in columns)),
        ("at and after it, most", *(bits(told.most_after) for told in columns)),
    ]
    if ours.score is not None:
        rows.append(("bits of truth learned at and after it", *(_signed(told.score) for told in columns)))
    print_table(f"{ours.steps} {title}: bits told", ("", "this log", "naive client"), rows)


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.3g}"


def _words(found: EverydayAudit) -> str:
    verdict = found.verdict
    if found.following is not None and found.following.refuted and not verdict.succeeded:
        return "NO VERDICT: a server that knows these habits better than the chain may learn more"
    if found.silent and verdict.conclusive and not verdict.succeeded:
        steps = f"{len(found.silent)} OFF steps could NOT be attacked: their laws are missing or impossible"
        return f"NO VERDICT: {steps}; with the others {_changes(verdict)}"
    return _outcome(verdict, found.passed)


def _outcome(verdict: Verdict, passed: bool = True) -> str:
    outcome = "tells nothing about private requests, at them or after them" if passed else IN_VAIN
    if not verdict.conclusive:
        outcome = "SAYS NOTHING: an allowance of 1 or more would let any leak pass"
    elif verdict.succeeded:
        outcome = "BETRAYS private requests"
    return f"{outcome} ({_changes(verdict)}; false alarms at most {100 * verdict.false_alarms:g} %)"


def _changes(verdict: Verdict) -> str:
    most = max(verdict.variation, verdict.happening)
    return f"beliefs changed by {most:.1e} on average, {verdict.allowed:.1e} is allowed"


def everyday_as_dict(found: EverydayAudit, chain: Chain) -> dict[str, Any]:
    """All of it for programs."""

    def told(one: Told | None) -> dict[str, Any] | None:
        if one is None:
            return None
        score = one.score if one.score is not None and isfinite(one.score) else None  # JSON has no infinity
        return {**asdict(one), "score": score}

    def shown(verdict: Verdict) -> dict[str, Any]:
        parts = {"private": told(verdict.private), "open": told(verdict.open)}
        return {**asdict(verdict), **parts, "succeeded": verdict.succeeded, "conclusive": verdict.conclusive}

    following = found.following
    habits = {} if following is None else {"following": {**asdict(following), "refuted": following.refuted}}
    return {
        "promise": "past",
        "sensitive": [chain.names[x] for x in found.sensitive],
        "steps": found.steps,
        "off": found.off,
        "passed": found.passed,
        "outcome": asdict(found.outcome),
        "log": shown(found.verdict),
        "naive": shown(found.naive),
        "recorded": found.recorded,
        "remade": found.remade,
        "findings": list(found.findings),
        "notes": list(found.notes),
        "not_in_stream": found.unseen,
        "other_lines": found.beside.lines,
        "repeats": found.repeats.lines,
        **rules_as_dict(found.rules),
        **habits,
    }

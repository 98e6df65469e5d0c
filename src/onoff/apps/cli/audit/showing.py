"""The audit of a transcript, as words and as a dictionary."""

from __future__ import annotations

from dataclasses import asdict
from math import inf
from typing import TYPE_CHECKING, Any

from onoff.apps.terminal import print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onoff.audit.transcript import Rules, TranscriptAudit
    from onoff.audit.transcript.attack import Audit
    from onoff.audit.transcript.draws import DrawTest
    from onoff.audit.transcript.publiclaw import LawTest
    from onoff.audit.transcript.repeats import Repeats
    from onoff.audit.transcript.verdict import Gain, Verdict
    from onoff.logs.follow import Following


UNTESTED = "whether the requests follow the chain was not tested: that takes --journal or --truth"
SAID_TWICE = ("one query", "journal")  # rules that the attack on the log looks at, too


def print_transcript(found: TranscriptAudit) -> None:
    """What the attack gained, what else is in the log, and what speaks against the client."""
    print_audit(found.audit, found.following, found.passed)
    if found.unseen:
        print(f"steps that are not in the log, and were not looked at: {found.unseen}")
    print_repeats(found.repeats, found.rules is not None)
    if found.beside.lines:
        advice = "; if other journals have sent them, name those with --other" if found.beside.findings else ""
        print(f"{found.beside.lines} queries of other streams are in the log: they were not attacked{advice}")
    if found.rules is not None:
        print_rules(found.rules, found.audit.findings, passed=found.passed)
    if found.law is not None:
        print_law(found.law)
    if found.drawn is not None:
        print_draws(found.drawn, "plans")
    print(found.outcome)


def transcript_as_dict(found: TranscriptAudit) -> dict[str, Any]:
    """All of it for programs."""
    following = found.following
    habits = {} if following is None else {"following": {**asdict(following), "refuted": following.refuted}}
    refuted = following is not None and following.refuted
    unseen = {
        "clean": found.audit.clean and not refuted,
        "passed": found.passed,
        "outcome": asdict(found.outcome),
        "steps": found.steps,
        "not_in_stream": found.unseen,
        "other_lines": found.beside.lines,
        "repeats": found.repeats.lines,
    }
    tests = {"law": found.law, "draws": found.drawn}
    shown = {name: {**asdict(one), "rejected": one.rejected} for name, one in tests.items() if one is not None}
    return {**audit_as_dict(found.audit), **unseen, **rules_as_dict(found.rules), **shown, **habits}


def print_audit(audit: Audit, following: Following | None = None, passed: bool = True) -> None:
    """Print what the server gained from our client and a naive one, and the verdict if requests fit the chain.

    If the whole audit has not `passed`, an attack in vain is no comfort, and is not told as one.
    """
    log, verdict = audit.log, audit.log.verdict
    warn(following)
    columns = {"this log": verdict} | ({} if audit.naive is None else {"naive client": audit.naive.verdict})
    for kind, gains in (
        ("private", [found.private for found in columns.values()]),
        ("open", [found.open for found in columns.values()]),
    ):
        rows = [("bits gained on a request, mean", *(f"{gain.mean_bits:.3g}" for gain in gains))]
        rows.append(("bits gained on a request, most", *(f"{gain.max_bits:.3g}" for gain in gains)))
        if audit.truth is not None:
            rows.append(("best guess right before the log", *(_percent(gain.guessed_before) for gain in gains)))
            rows.append(("best guess right after the log", *(_percent(gain.guessed) for gain in gains)))
            rows.append(("bits of truth learned, mean", *(_signed(gain.score) for gain in gains)))
        print_table(f"{gains[0].requests} {kind} requests", ("", *columns), rows)
    print(
        f"{verdict.attacked + verdict.unattacked} steps in the log: {verdict.attacked} attacked, "
        f"{verdict.unattacked} not"
    )
    if verdict.unattacked:
        print("not attacked: drawn by a race (no table), or by a plan that is not in --plans or not fit")
    for finding in audit.findings[:10]:
        print(f"finding: {finding}")
    if len(audit.findings) > 10:
        print(f"and {len(audit.findings) - 10} findings more")
    if audit.naive is not None:
        print(f"naive client: {_words(audit.naive.verdict)}")
    if log.blind:
        print("this log: no OFF step could be attacked: this says nothing")
    elif following is not None and following.refuted and not verdict.succeeded:
        print("this log: NO VERDICT: a server that knows these habits better than the chain may learn more")
    else:
        print(f"this log: {_words(verdict, log.missed, passed)}")
    print(UNTESTED if following is None else following.words())


def warn(following: Following | None) -> None:
    """Say before all figures that they may be worth nothing, if that is so."""
    if following is not None and following.refuted:
        print(
            "WARNING: the requests DO NOT FOLLOW the chain, which this audit takes for granted. The figures below are"
        )
        print("what a server with this chain learns. One that knows these habits better may learn more: NO VERDICT.")


def print_rules(
    rules: Rules,
    findings: Sequence[str] = (),
    made: str = "statuses, announcements and plans",
    source: str = "plans",
    passed: bool = True,
) -> None:
    """What the client did against its rules, what its choices (`made`) follow, and whether its sets fit their `source`.

    Where one of the findings says the same of the same step, that is enough.
    """
    breaches, chosen = rules.breaches, rules.chosen
    told = {words[1].rstrip(":") for words in map(str.split, findings) if words[0] == "step"}
    untold = [breach for breach in breaches if breach.rule not in SAID_TWICE or str(breach.step) not in told]
    for breach in untold[:10]:
        print(f"rule broken ({breach.rule}): {breach.message}")
    if len(untold) > 10:
        print(f"and {len(untold) - 10} breaches more")
    if not breaches:
        print("the rules of the client: kept" if passed else "the rules of the client: none was seen broken")
    follow = "do NOT look independent of" if chosen.rejected else "do not follow"
    rate = f"p = {chosen.p_value:.2g}, false alarms at most {100 * chosen.false_alarm:g} %"
    look = f": look at {chosen.hint}" if chosen.rejected else ""
    print(f"{made} {follow} the requests{look} ({rate})")
    print_draws(rules.drawn, source)


def print_repeats(again: Repeats, judged: bool = True) -> None:
    """How many queries came again, and what is known of that."""
    words = (
        "as often as the journal counts at most, and not by the request" if judged else "not judged without --journal"
    )
    note = f" ({'see the findings' if again.findings else words})" if again.lines else ""
    print(f"queries that came again: {again.lines}{note}")


def print_law(law: LawTest) -> None:
    """What the sets of a log say by themselves."""
    rest = f", {law.untested} not tested: no plan with a table serves them" if law.untested else ""
    outcome = f"NOT such as these plans draw: look at {law.hint}" if law.rejected else "such as these plans draw"
    words = f"{law.tested} sets of OFF steps: {outcome}" if law.tested else "0 sets of OFF steps tested"
    print(f"{words} (p = {law.p_value:.2g}, false alarms at most {100 * law.false_alarm:g} %){rest}")
    if law.rejected:
        print("  so the client draws otherwise, or has other plans, or its requests do not follow the chain")


def print_draws(drawn: DrawTest, source: str) -> None:
    """Whether sets fit their requests."""
    rest = f", {drawn.untested} not tested" if drawn.untested else ""
    if not drawn.tested:
        print(f"0 sets tested against {source}{rest}")
        return
    raced = f", {drawn.raced} of them of races," if drawn.raced else ""
    outcome = f"NOT drawn as the {source} say: look at {drawn.hint}" if drawn.rejected else f"drawn as the {source} say"
    print(
        f"{drawn.tested} sets{raced}: {outcome} (p = {drawn.p_value:.2g}, "
        f"false alarms at most {100 * drawn.false_alarm:g} %){rest}"
    )


def rules_as_dict(rules: Rules | None) -> dict[str, Any]:
    if rules is None:
        return {}
    return {
        "breaches": [asdict(breach) for breach in rules.breaches],
        "draws": {**asdict(rules.drawn), "rejected": rules.drawn.rejected},
        "choices": {**asdict(rules.chosen), "rejected": rules.chosen.rejected},
    }


IN_VAIN = "was attacked in vain, which is no comfort while the audit does not pass"


def _words(verdict: Verdict, missed: int = 0, passed: bool = True) -> str:
    """The verdict of one column, of which so many OFF steps were not attacked."""
    tests = f"beliefs changed by {verdict.variation:.1e} on average, {verdict.allowed:.1e} is allowed"
    if verdict.p_value is not None:
        tests += f"; strangers score as well with p = {verdict.p_value:.3f}"
    outcome = "BETRAYS private requests" if verdict.succeeded else "tells nothing about private requests"
    if not verdict.conclusive:
        outcome = "SAYS NOTHING: an allowance of 1 or more would let any leak pass"
    elif not passed and not verdict.succeeded:
        outcome = IN_VAIN
    elif missed and not verdict.succeeded:
        outcome = f"the {verdict.attacked} attacked steps tell nothing about private requests"
    words = f"{outcome} ({tests}; false alarms at most {100 * verdict.false_alarms:g} %)"
    return f"{words}; {missed} OFF steps were not attacked" if missed else words


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f} %"


def _signed(bits: float | None) -> str:
    return "" if bits is None else f"{bits:+.3g}"


def audit_as_dict(audit: Audit) -> dict[str, Any]:
    def gained(gain: Gain) -> dict[str, Any]:
        return {**asdict(gain), "score": None if gain.score == -inf else gain.score}  # JSON has no infinity

    def shown(verdict: Verdict) -> dict[str, Any]:
        gains = {"private": gained(verdict.private), "open": gained(verdict.open)}
        return {
            **asdict(verdict),
            **gains,
            "succeeded": verdict.succeeded,
            "conclusive": verdict.conclusive,
        }

    return {
        "steps": audit.log.verdict.attacked + audit.log.verdict.unattacked,
        "clean": audit.clean,
        "findings": audit.findings,
        "log": shown(audit.log.verdict),
        "naive": None if audit.naive is None else shown(audit.naive.verdict),
    }

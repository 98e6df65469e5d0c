"""What whole streams tell, as tables, words and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.apps.cli.output import print_table
from onoff.audit.setting import stationary_start

if TYPE_CHECKING:
    from onoff.audit.joint import Leakage, Mistaken
    from onoff.audit.measures import Measures
    from onoff.model.chain import Chain


def first_request(chain: Chain, uniform: bool = False) -> str:
    """In words, where the streams start."""
    if uniform:
        return "the first request may be anything, all alike"
    if stationary_start(chain):
        return "the first request follows the stationary law"
    return "the first request may be anything, all alike: the stationary law excludes sources, or there are several"


def print_joint(statuses: Sequence[bool], findings: Sequence[Leakage]) -> None:
    """Bits at every step for each scheme, the verdicts, and what is told at the end."""
    rows = [
        [str(t), "ON" if private else "OFF", *(_cell(finding, t) for finding in findings)]
        for t, private in enumerate(statuses, 1)
    ]
    title = "bits that the queries up to t tell about requests made ON and after t"
    print_table(title, ["t", "status", *(finding.scheme for finding in findings)], rows)
    for finding in findings:
        print(f"{finding.scheme}: {_verdict(finding)}")
    measured = [(finding, about, found) for finding in findings for about, found in _measured(finding)]
    if measured:
        print_table(
            "at the end: bits, the chance of a best guess without and with the queries, leakages in bits",
            ["about", "scheme", "bits", "prior guess", "guess", "min-ent.", "maximal"],
            [
                [
                    about,
                    finding.scheme,
                    bits(found.information),
                    f"{found.prior_guess:.4f}",
                    f"{found.guess:.4f}",
                    bits(found.min_entropy_leakage),
                    bits(found.maximal_leakage),
                ]
                for finding, about, found in measured
            ],
        )
        if missing := [finding.scheme for finding in findings if finding.whole is None]:
            print(f"guesses take all streams one by one, and of {', '.join(missing)} there are too many: bits only")


def bits(value: float) -> str:
    """Bits for people: small ones as a power of ten; below what the units of the audit can tell, 0."""
    if abs(value) < 1e-80:
        return "0"
    return f"{value:.4f}" if abs(value) >= 1e-4 else f"{value:.0e}"


def at_most(value: float) -> str:
    """As `bits`, but never rounded down: what is shown of a bound must be one."""
    if value >= 1e-4:
        return bits(ceil(value * 10_000) / 10_000)
    return bits(float(Context(prec=1, rounding=ROUND_CEILING).create_decimal(value)))


def _cell(finding: Leakage, t: int) -> str:
    value = finding.bits[t - 1]
    shown = f"<= {at_most(value)}" if finding.method.startswith("bound") else bits(value)
    return f"{shown} ± {bits(finding.margin[t - 1])}" if finding.margin else shown


def _verdict(finding: Leakage) -> str:
    """By which method, and whether the promise holds."""
    words = finding.method
    if finding.fault is not None:
        return f"{words}; NOT DRAWN AS STATED: {finding.fault}"
    if finding.bias:
        words += f" from draws; {bits(finding.bias[-1])} bits of bias by sampling were subtracted"
    elif finding.margin:
        words += " from sampled streams, 95 % interval"
    if finding.tested is not None:
        words += f"; tested: {finding.tested}"
    if finding.allowed is None and finding.distance is None:
        return words
    if not finding.holds:
        words += "; MORE THAN STATED"
    elif finding.distance is not None and finding.allowed is not None:
        words += "; 0 within rounding"
    if finding.distance is None or finding.allowed is None:
        return words
    return f"{words}: total variation {finding.distance:.1e}, allowed {finding.allowed:.1e}"


def _measured(finding: Leakage) -> list[tuple[str, Measures]]:
    """The hidden requests together, and the private or next one of which most is told."""
    if finding.whole is None:
        return []
    step = max(finding.single, key=lambda step: finding.single[step].information)
    return [("all hidden", finding.whole), (f"request {step}", finding.single[step])]


def print_mistaken(statuses: Sequence[bool], found: Sequence[Mistaken], others: Sequence[Leakage]) -> None:
    """The bound and what is told under the true chain, beside clients without plans."""
    columns = [*(one.scheme for one in found), *(one.scheme for one in others)]
    rows = []
    for t, private in enumerate(statuses):
        cells = [("<= " if one.found.method == "bound" else "") + bits(one.found.bits[t]) for one in found]
        most = [at_most(max(one.bits[t] for one in found))] if found else []
        rows.append([str(t + 1), "ON" if private else "OFF", *most, *cells, *(bits(one.bits[t]) for one in others)])
    title = "bits that the queries up to t tell about requests made ON and after t, if they follow the true chain"
    print_table(title, ["t", "status", *(["bound"] if found else []), *columns], rows)
    for one in found:
        exact = one.found.method != "bound"
        what = (
            f"total variation from independence {one.found.distance:.2e}, "
            if exact
            else "too many streams to enumerate; "
        )
        limits = f"at most {2 * one.distances[-1]:.2e}; " if exact else ""
        verdict = "within the bound" if one.holds else "MORE THAN THE BOUND"
        steps = f"its encoders make {one.encoders:.2e} of {one.anywhere[-1]:.2e}"
        print(f"{one.scheme}: {what}{limits}{steps}: {verdict}")
    if found:
        here, anywhere = (max(getattr(one, name)[-1] for one in found) for name in ("distances", "anywhere"))
        print(
            "a guess at what is hidden is right more often than without the queries by "
            f"{at_most(min(here, 1.0))} at most, and by {at_most(min(anywhere, 1.0))} wherever the stream starts"
        )


def plot_joint(statuses: Sequence[bool], findings: Sequence[Leakage], file: Path) -> None:
    """A line of bits for each scheme."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from onoff.apps.plots import save

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = range(1, len(statuses) + 1)
    for t, private in zip(steps, statuses, strict=True):
        if private:
            axes.axvspan(t - 0.5, t + 0.5, color="#0072bd", alpha=0.12, linewidth=0, label="ON" if t == 1 else None)
    for finding, marker in zip(findings, "os^vDPX", strict=False):
        axes.errorbar(steps, finding.bits, finding.margin or None, marker=marker, markersize=4, label=finding.scheme)
    axes.set_xlabel("t, the number of the request from 1 on")
    axes.set_ylabel("bits about the hidden requests")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, file, dpi=200)

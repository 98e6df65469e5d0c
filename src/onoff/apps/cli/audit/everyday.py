"""`onoff audit joint --promise past`: what streams of the everyday client tell, as tables, words and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.apps.cli.audit.showjoint import at_most, bits, first_request
from onoff.apps.cli.output import note, plain_data, print_json, print_table
from onoff.apps.progress import progress

if TYPE_CHECKING:
    from onoff.audit.everyday import Compared, Misfit, Streams, Told
    from onoff.audit.joint import Effort
    from onoff.model.chain import Chain


def audit_past(
    chain: Chain,
    statuses: Sequence[bool],
    sensitive: Sequence[str],
    true: Chain | None,
    decoys: int | None,
    uniform: bool,
    effort: Effort,
    as_json: bool,
    plot: Path | None,
) -> bool:
    """Audit the engine on whole streams and print what was found; whether it is as promised."""
    from onoff.audit.everyday import audit_everyday, audit_everyday_mistaken
    from onoff.everyday import Everyday
    from onoff.everyday.state import sensitive_sources

    hidden = sensitive_sources(chain, sensitive)
    engine = Everyday.start(chain, hidden)
    if true is not None:
        misfit = audit_everyday_mistaken(
            chain, true, statuses, engine, hidden, uniform=uniform, effort=effort, progress=progress
        )
        if as_json:
            print_json({**plain_data(misfit), "holds": misfit.holds, "guess": misfit.guess})
        else:
            _print_misfit(statuses, misfit)
            print(first_request(true, uniform))
        return misfit.holds
    found = audit_everyday(
        chain, statuses, engine, hidden, uniform=uniform, decoys=decoys, effort=effort, progress=progress
    )
    if as_json:
        print_json({**plain_data(found), "holds": found.holds})
    else:
        _print(found)
        print(first_request(chain, uniform))
    if plot is not None:
        _plot(found, plot)
        note(f"drawn: {plot}")
    return found.holds


def _print(found: Compared) -> None:
    headings = ["t", "status", *(client.client for client in found.clients)]
    hidden = "made ON" + (", or whether and which sensitive source was asked for" if found.sensitive else "")
    steps = list(enumerate(zip(*(client.steps for client in found.clients), strict=True), 1))
    print_table(
        f"bits that the query at t tells about requests {hidden}, given the queries before it",
        headings,
        [[str(t), _status(told[0]), *(_with_margin(one.bits, one.margins[0]) for one in told)] for t, told in steps],
    )
    for client in found.clients:
        print(f"{client.client}: {_verdict(client)}")
    before = [(t, told) for t, told in steps if told[0].before is not None]
    print_table(
        "not promised: bits that the queries before t tell about what is hidden of t",
        headings,
        [
            [str(t), _status(told[0]), *(_with_margin(one.before or 0.0, one.margins[1]) for one in told)]
            for t, told in before
        ],
    )
    print_table(
        "messages",
        headings,
        [[str(t), _status(told[0]), *(_messages(one) for one in told)] for t, told in steps],
    )


def _print_misfit(statuses: Sequence[bool], misfit: Misfit) -> None:
    rows = [
        [str(t), "ON" if private else "OFF", at_most(most), _with_margin(step.bits, step.margins[0])]
        for t, (private, most, step) in enumerate(zip(statuses, misfit.bits, misfit.found.steps, strict=True), 1)
    ]
    title = "bits that the query at t tells about what is hidden, given the queries before it, under the true chain"
    print_table(title, ["t", "status", "bound", "everyday"], rows)
    worst = max(range(len(statuses)), key=lambda t: misfit.found.steps[t].average or 0.0)
    average = misfit.found.steps[worst].average or 0.0
    verdict = "within the bound" if misfit.holds else "MORE THAN THE BOUND"
    allowed = misfit.allowed[worst]
    print(f"everyday: {misfit.found.method}; at t = {worst + 1} the law of the query is on average {average:.2e} from")
    print(f"  the stated one, at most {allowed:.2e}: {verdict}")
    for fault in misfit.found.faults:
        print(f"  {fault}")
    print(
        "a guess at something hidden is right more often, through queries made then or later, by "
        f"{at_most(misfit.guess)} at most"
    )


def _status(told: Told) -> str:
    return "ON" if told.private else "OFF"


def _with_margin(value: float, margin: float) -> str:
    return f"{bits(value)} ± {bits(margin)}" if margin > 1e-20 else bits(value)


def _messages(told: Told) -> str:
    return f"{told.messages:.2f} ± {told.margins[2]:.2f}" if told.margins[2] > 1e-9 else f"{told.messages:.2f}"


def _verdict(found: Streams) -> str:
    """By which method, and whether the promise holds."""
    if found.holds is None:
        return f"{found.method}; promises nothing"
    stated = [step for step in found.steps if step.distance is not None]
    words = f"{found.method}; " + ("0 within rounding" if found.holds else "MORE THAN STATED")
    if stated:
        worst = max(stated, key=lambda step: step.distance or 0.0)
        words += f": given any past within {worst.distance:.1e} of its law, {worst.stated:.1e} is stated"
    return "; ".join([words, *(f"FAULT {fault}" for fault in found.faults[:5])])


def _plot(found: Compared, file: Path) -> None:
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    from onoff.apps.plots import save

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    steps = range(1, len(found.statuses) + 1)
    for t, private in zip(steps, found.statuses, strict=True):
        if private:
            axes.axvspan(t - 0.5, t + 0.5, color="#0072bd", alpha=0.12, linewidth=0, label="ON" if t == 1 else None)
    for client, marker in zip(found.clients, "os^", strict=True):
        margins = [step.margins[0] for step in client.steps]
        values = [step.bits for step in client.steps]
        axes.errorbar(
            steps, values, margins if any(margins) else None, marker=marker, markersize=4, label=client.client
        )
    axes.set_xlabel("t, the number of the request from 1 on")
    axes.set_ylabel("bits of the query about what is hidden")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save(figure, file, dpi=200)

"""A picture of the server's beliefs: what probability it gives to the true private request, query by query."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.audit.transcript.belief import Asked, unfold
from onoff.errors import OnoffError
from onoff.extras import need
from onoff.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from onoff.audit.transcript.attack import Attack, Audit
    from onoff.model.chain import Chain

REQUESTS = 5  # shown: more lines are a tangle
STEPS = 60  # shown at most
EARLY, LATE = 4, 12  # steps before and after a request in which beliefs about it move
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00")


def draw(audit: Audit, chain: Chain, file: Path) -> None:
    """Two panels, the log and a naive client on the same requests: one line for each private request next to OFF.

    The dashed line is the prior: a line that stays on its dashes is a request about which the server learned nothing.
    """
    need("plots", "a picture")
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    if audit.naive is None or audit.truth is None:
        raise OnoffError("a picture of beliefs needs the true requests")
    shown, first, end = _window(audit.log.asked)
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for panel, title, attack in zip(panels, ("this log", "a naive client"), (audit.log, audit.naive), strict=True):
        _panel(panel, attack, audit.truth, chain, shown, first, end)
        panel.set_title(title)
    panels[0].set_ylabel("the server's probability of the true source")
    panels[0].set_ylim(0, min(1.02, 1.15 * max(panel.dataLim.y1 for panel in panels)))
    figure.suptitle("What the server believes about private requests", fontsize=12)
    handles, labels = panels[0].get_legend_handles_labels()
    handles.append(Line2D([], [], color="0.4", linestyle="--", linewidth=1))
    labels.append("before any query")
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file.suffix.lower().removeprefix("."), dpi=200)
    write_atomically(file, buffer.getvalue())


def _window(asked: Sequence[Asked]) -> tuple[list[int], int, int]:
    """The first private requests next to an OFF period, and the steps to show them in, from an ON step on."""
    private = [step.lag == 0 for step in asked]
    bordering = [
        t
        for t, on in enumerate(private)
        if on and (not all(private[max(0, t - 1) : t]) or not all(private[t + 1 : t + 2]))
    ]
    if not bordering:
        raise OnoffError("privacy was never switched in this log: there is nothing to draw")
    first = max(0, bordering[0] - EARLY)
    while not private[first]:
        first += 1
    shown = [t for t in bordering[:REQUESTS] if t < first + STEPS]
    return shown, first, min(len(asked), shown[-1] + LATE, first + STEPS)


def _panel(
    panel: Axes, attack: Attack, truth: Sequence[int], chain: Chain, shown: Sequence[int], first: int, end: int
) -> None:
    from matplotlib.ticker import MaxNLocator

    beliefs = unfold(chain, attack.asked, attack.beliefs, first, end)
    for t in range(first, end):
        if attack.asked[t].lag:
            panel.axvspan(t - 0.5, t + 0.5, color="0.93", linewidth=0)
    for step, colour in zip(shown, COLOURS, strict=False):
        x = truth[step]
        times = [t for t in range(first, end) if step - EARLY <= t <= step + LATE]
        believed = [beliefs[t - first, step - first, x] for t in times]
        label = f"{chain.names[x]}, step {step}"
        panel.plot(times, [attack.beliefs.prior[step, x]] * len(times), color=colour, linestyle="--", linewidth=1)
        panel.step(times, believed, where="mid", color=colour, linewidth=2.2, alpha=0.85, label=label)
        panel.plot(step, believed[times.index(step)], marker="o", color=colour, markersize=6)
    panel.set_xlabel("queries seen (grey: privacy OFF; dot: the request itself)")
    panel.set_xlim(first - 0.5, end - 0.5)
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.spines[["top", "right"]].set_visible(False)

"""Costs over lags as pictures."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.errors import OnoffError
from onoff.extras import need
from onoff.files import check_file, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from onoff.apps.terminal import Rate

PICTURES = (".png", ".svg", ".pdf")
MOST_PICTURES = 24  # chains that `plot_sweep` draws


def check_picture(file: Path) -> None:
    """Raise before the work, not after it, if nothing can be drawn: the name, the directory, or no matplotlib."""
    need("plots", "a picture")
    if file.suffix.lower() not in PICTURES:
        raise OnoffError(f"{file}: a picture ends in {', '.join(PICTURES)}")
    check_file(file)


def save(figure: Figure, file: Path, **options: Any) -> None:
    """Write the picture whole or not at all; an error names the file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file.suffix.lower().removeprefix("."), **options)
    write_atomically(file, buffer.getvalue())


def plot_rates(rows: Sequence[Rate], file: Path) -> None:
    """Draw the cost over the lag for everything, the paper's scheme (or its bound), the optimum and the outer bound."""
    need("plots", "a picture")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    lags = [row.lag for row in rows]
    axes.plot(lags, [row.everything for row in rows], color="gray", linestyle=":", label="everything")
    scheme = [row.inner if row.paper is None else row.paper for row in rows]
    label = "paper's scheme" if rows[0].paper is not None else "paper's inner bound"
    axes.plot(lags, scheme, color="#0072bd", marker="o", markersize=4, label=label)
    axes.plot(lags, [row.optimum for row in rows], color="#228b22", marker="s", markersize=4, label="optimum")
    axes.plot(lags, [row.outer for row in rows], color="#d62728", linewidth=4, alpha=0.4, label="outer bound")
    save_costs(figure, axes, file)


def save_costs(figure: Figure, axes: Axes, file: Path, title: str = "") -> None:
    """Finish a plot of costs over lags."""
    from matplotlib.ticker import MaxNLocator

    if title:
        figure.suptitle(title, fontsize="medium")

    axes.set_xlabel("lag (steps since privacy was last ON)")
    axes.set_ylabel("cost (messages per request)")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)  # above, where no line is
    save(figure, file, dpi=200)


def plot_sweep(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw the cost over the lag.

    Each chain has a picture, each scheme a line; a band lies between outer and inner bound.
    """
    need("plots", "a picture")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    chains = list(dict.fromkeys((row["chain"], row["fingerprint"]) for row in rows))[:MOST_PICTURES]
    schemes = list(dict.fromkeys(row["scheme"] for row in rows))
    across = min(4, len(chains))
    down = math.ceil(len(chains) / max(1, across))
    figure = Figure(figsize=(1 + 4 * max(1, across), 1 + 3 * max(1, down)), layout="constrained")
    for position, chain in enumerate(chains):
        axes = figure.add_subplot(down, across, position + 1)
        own = [row for row in rows if (row["chain"], row["fingerprint"]) == chain]
        known = sorted({(row["lag"], row["outer"], row["inner"]) for row in own if row["outer"] is not None})
        if known:
            lags, outer, inner = zip(*known, strict=True)
            axes.fill_between(lags, outer, inner, color="gray", alpha=0.2, label="outer to inner bound")
        for number, scheme in enumerate(schemes):
            line = sorted((row["lag"], row["cost"]) for row in own if row["scheme"] == scheme and row["error"] is None)
            axes.plot(*zip(*line, strict=True), color=f"C{number}", marker=".", label=scheme) if line else None
        axes.set_title(chain[0], parse_math=False)
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
        if position == 0:
            axes.legend(frameon=False)
    figure.supxlabel("lag (steps since privacy was last ON)")
    figure.supylabel("cost (messages per request)")
    save(figure, file, dpi=150)

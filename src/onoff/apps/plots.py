"""Pictures: costs over lags, and Figure 2 of the paper with its numbers.

Figure 2 is about the symmetric chain of three sources: its rates over alpha (2b) and over time (2c).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import OnoffError
from onoff.extras import need
from onoff.files import check_file, make_directory, write_atomically
from onoff.model.bounds import bounds
from onoff.model.chain import Chain
from onoff.plans.plan import plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from onoff.apps.costs import Cost

PICTURES = (".png", ".svg", ".pdf")
MOST_PICTURES = 24  # chains that `plot_costs` draws
SOURCES = 3  # of Figure 2
LAGS = (1, 2, 3, 4, 5, 6)
ALPHAS_OVER_TIME = (0.25, 0.6)
LOOKS: dict[str, dict[str, Any]] = {  # equal lines show: one is broad and pale, one has large hollow markers
    "inner": {"color": "#0072bd", "marker": "s", "markersize": 8, "fillstyle": "none", "zorder": 3},
    "outer": {"color": "#d62728", "linewidth": 4, "alpha": 0.4},
    "optimum": {"color": "#228b22", "marker": "o", "markersize": 3.5, "zorder": 3},
}


def check_picture(file: Path) -> None:
    """Raise before the work if a picture cannot be drawn: the name, the directory, or no matplotlib."""
    need("plots", "a picture")
    if file.suffix.lower() not in PICTURES:
        raise OnoffError(f"{file}: a picture ends in {', '.join(PICTURES)}")
    check_file(file)


def _save(figure: Figure, file: Path, **options: Any) -> None:
    """Write the picture whole or not at all; an error names the file."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=file.suffix.lower().removeprefix("."), **options)
    write_atomically(file, buffer.getvalue())


def _make_figure(width: float, height: float) -> Figure:
    """Make a figure of its own, without the global state of pyplot."""
    need("plots", "a picture")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def plot_costs(costs: Sequence[Cost], file: Path) -> None:
    """Draw the cost over the lag: a picture for each chain, a line for each promise and scheme, bars for margins."""
    chains = list(dict.fromkeys(cost.chain for cost in costs))[:MOST_PICTURES]
    across = max(1, min(4, len(chains)))
    down = max(1, math.ceil(len(chains) / across))
    figure = _make_figure(1 + 4 * across, 1 + 3 * down)
    for position, chain in enumerate(chains):
        axes = figure.add_subplot(down, across, position + 1, sharey=figure.axes[0] if position else None)
        _draw_costs(axes, [cost for cost in costs if cost.chain == chain and cost.error is None])
        axes.set_title(chain, parse_math=False)
    figure.axes[0].legend(frameon=False)
    figure.supxlabel("lag (steps since privacy was last ON)")
    figure.supylabel("cost (messages per request)")
    _save(figure, file, dpi=150)


def _draw_costs(axes: Axes, costs: Sequence[Cost]) -> None:
    from matplotlib.ticker import MaxNLocator

    for kind in dict.fromkeys((cost.promise, cost.scheme) for cost in costs):
        line = sorted((cost for cost in costs if (cost.promise, cost.scheme) == kind), key=lambda cost: cost.lag)
        messages, margins = [cost.messages or 0.0 for cost in line], [cost.margin for cost in line]
        label = ", ".join(filter(None, kind))
        axes.errorbar([cost.lag for cost in line], messages, margins, marker=".", capsize=2, label=label)
    if costs:
        axes.axhline(costs[0].n, color="grey", linestyle=":", label="everything")
    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)


# Figure 2


@dataclass(frozen=True)
class Curve:
    """One line of a figure: the rate `y` at each `x`."""

    key: str
    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def reproduce(directory: Path) -> list[Path]:
    """Draw Figures 2b and 2c as PNG and SVG, write their numbers as CSV, and return the files in order.

    The same numbers give the same files: pictures have no date and no random names.
    """
    need("plots", "a picture")
    from matplotlib import rc_context

    make_directory(directory)
    files: list[Path] = []
    for name, curves, x_label in (
        ("2b", figure_2b(), r"$\alpha$, the probability to stay"),
        ("2c", figure_2c(), "time since privacy was last ON (steps)"),
    ):
        png, svg, table = (directory / f"figure-{name}.{kind}" for kind in ("png", "svg", "csv"))
        with rc_context({"svg.hashsalt": "onoff"}):
            figure = draw_curves(curves, x_label)
            _save(figure, png, dpi=200)
            _save(figure, svg, dpi=200, metadata={"Date": None})
        _write_csv(curves, table)
        files += [png, svg, table]
    return files


def figure_2b() -> list[Curve]:
    """Compute R^I, R^O and the optimum at lag 1 as alpha goes from 0 to 1."""
    return [
        Curve(key, label, alphas(step), tuple(_rate(key, alpha, 1) for alpha in alphas(step)))
        for key, label, step in (
            ("inner", "$R^I$, the paper's scheme", 0.05),
            ("outer", "$R^O$, upper bound", 0.01),
            ("optimum", "optimum", 0.05),
        )
    ]


def figure_2c() -> list[Curve]:
    """Compute R^I, R^O and the optimum over time, for one alpha of each regime."""
    return [
        Curve(
            f"{key}, alpha={alpha:g}", f"{label}, $\\alpha={alpha:g}$", LAGS, tuple(_rate(key, alpha, t) for t in LAGS)
        )
        for alpha in ALPHAS_OVER_TIME
        for key, label in (("inner", "$R^I$"), ("outer", "$R^O$"), ("optimum", "optimum"))
    ]


def alphas(step: float) -> tuple[float, ...]:
    """Make the paper's grid for Figure 2b: from 0 to 1/3 by `step`, then from 1/3 on; 1 itself is left out.

    At 1/3 every request is like any other: there all rates have their peak, 1.
    """
    peak = 1 / SOURCES
    below = np.arange(0, peak - 1e-9, step)  # less a little: rounding must not add the end itself
    above = np.arange(peak, 1 - 1e-9, step)
    return tuple(float(a) for a in np.concatenate([below, above]))


def _rate(key: str, alpha: float, lag: int) -> float:
    """Compute one of the three rates of the symmetric chain."""
    chain = Chain.symmetric(SOURCES, alpha)
    if key == "optimum":
        return 1 / plan(chain, lag, gap=1e-9).cost
    found = bounds(chain.posterior(lag))
    return float(found.inner_rate if key == "inner" else found.outer_rate)


def _write_csv(curves: Sequence[Curve], file: Path) -> None:
    """Write a tidy table of curve, x, rate and cost, with all digits."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["curve", "x", "rate", "cost"])
    for curve in curves:
        writer.writerows([curve.key, repr(x), repr(y), repr(1 / y)] for x, y in zip(curve.x, curve.y, strict=True))
    write_atomically(file, table.getvalue().encode())


def draw_curves(curves: Sequence[Curve], x_label: str) -> Figure:
    """Draw rates as lines, with one kind of dashes for each alpha."""
    figure = _make_figure(5, 3.8)
    axes = figure.subplots()
    dashes: dict[str, str] = {}
    for curve in curves:
        kind, _, family = curve.key.partition(", ")
        line = dashes.setdefault(family, ("-", "--")[len(dashes) % 2])
        axes.plot(curve.x, curve.y, line, label=curve.label, **LOOKS[kind])
    axes.set_xlabel(x_label)
    axes.set_ylabel("rate (messages wanted per download)")
    axes.set_ylim(0.3, 1.02)
    axes.grid(alpha=0.3)
    # Above the axes, where no curve is.
    columns = len(dashes) if len(dashes) > 1 else len(curves)
    axes.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)
    return figure

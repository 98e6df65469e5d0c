"""Figure 2 of the paper: the symmetric chain of three sources (2a) and its rates over alpha (2b) and time (2c)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onoff.apps.plots import save
from onoff.extras import need
from onoff.files import make_directory, write_atomically
from onoff.model.bounds import Bounds, bounds
from onoff.model.chain import Chain
from onoff.plans.plan import plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SOURCES = 3
LAGS = range(1, 7)
ALPHAS_OVER_TIME = (0.25, 0.6)
PALETTE = {"inner": "#0072bd", "outer": "#d62728", "optimum": "#228b22"}


@dataclass(frozen=True)
class Curve:
    """One line of a figure: the rate `y` at each `x`."""

    key: str
    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]


def alphas(step: float, n: int = SOURCES) -> tuple[float, ...]:
    """The paper's grid for Figure 2b: from 0 to 1/n by `step`, then from 1/n on; 1 itself is left out.

    At 1/n every request is like any other: there all rates have their peak, 1.
    """
    peak = 1 / n
    below = np.arange(0, peak - 1e-9, step)  # less a little: rounding must not add the end itself
    above = np.arange(peak, 1 - 1e-9, step)
    return tuple(float(a) for a in np.concatenate([below, above]))


def figure_2b() -> list[Curve]:
    """R^I, R^O and the optimum at lag 1 as alpha goes from 0 to 1."""
    return rates_over_alpha(SOURCES)


def figure_2c() -> list[Curve]:
    """R^I, R^O and the optimum over time for one alpha of each regime."""
    return rates_over_lag(ALPHAS_OVER_TIME, SOURCES)


def rates_over_alpha(n: int) -> list[Curve]:
    """The three curves of the symmetric chain of n sources at lag 1."""
    return [
        _curve("inner", "$R^I$, the paper's scheme", alphas(0.05, n), lambda a: _bounds(n, a, 1).inner_rate),
        _curve("outer", "$R^O$, upper bound", alphas(0.01, n), lambda a: _bounds(n, a, 1).outer_rate),
        _curve("optimum", "optimum", alphas(0.05, n), lambda a: _optimum(n, a, 1)),
    ]


def rates_over_lag(over: Iterable[float], n: int) -> list[Curve]:
    """The three curves for each of these alphas, as the lag grows."""
    curves = []
    for alpha in over:
        name, shown = f", alpha={alpha:g}", f"$\\alpha={alpha:g}$"
        curves += [
            _curve("inner" + name, f"$R^I$, {shown}", LAGS, lambda t, a=alpha: _bounds(n, a, t).inner_rate),  # type: ignore[misc]
            _curve("outer" + name, f"$R^O$, {shown}", LAGS, lambda t, a=alpha: _bounds(n, a, t).outer_rate),  # type: ignore[misc]
            _curve("optimum" + name, f"optimum, {shown}", LAGS, lambda t, a=alpha: _optimum(n, a, t)),  # type: ignore[misc]
        ]
    return curves


def _bounds(n: int, alpha: float, lag: float) -> Bounds:
    return bounds(Chain.symmetric(n, alpha).posterior(int(lag)))


def _optimum(n: int, alpha: float, lag: float) -> float:
    return 1 / plan(Chain.symmetric(n, alpha), int(lag), gap=1e-9).cost


def _curve(key: str, label: str, xs: Iterable[float], rate: Callable[[float], float]) -> Curve:
    points = [(float(x), float(rate(x))) for x in xs]
    return Curve(key, label, tuple(x for x, _ in points), tuple(y for _, y in points))


def reproduce(directory: Path) -> list[Path]:
    """Draw Figures 2a, 2b and 2c as PNG and SVG, write their numbers as CSV, and return the files in order."""
    need("plots", "a picture")
    make_directory(directory)
    files: list[Path] = []
    files += _save(draw_chain(), directory / "figure-2a")
    for name, curves, x_label in (
        ("2b", figure_2b(), r"$\alpha$, the probability to stay"),
        ("2c", figure_2c(), "time since privacy was last ON (steps)"),
    ):
        files += _save(draw_curves(curves, x_label), directory / f"figure-{name}")
        files.append(write_csv(curves, directory / f"figure-{name}.csv"))
    return files


def write_csv(curves: Sequence[Curve], file: Path) -> Path:
    """Write a tidy table of curve, x, rate and cost, with all digits."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["curve", "x", "rate", "cost"])
    for curve in curves:
        writer.writerows([curve.key, repr(x), repr(y), repr(1 / y)] for x, y in zip(curve.x, curve.y, strict=True))
    write_atomically(file, table.getvalue().encode())
    return file


def draw_curves(curves: Sequence[Curve], x_label: str) -> Figure:
    """Draw rates as lines.

    The bound is broad and pale, the schemes are thin with markers on top, so that equal ones show.
    """
    figure, axes = _canvas()
    dashes: dict[str, str] = {}
    for curve in curves:
        kind, _, family = curve.key.partition(", ")
        line = dashes.setdefault(family, ("-", "--")[len(dashes) % 2])
        look = {"linewidth": 4, "alpha": 0.4} if kind == "outer" else {"marker": "o", "markersize": 4, "zorder": 3}
        axes.plot(curve.x, curve.y, line, color=PALETTE[kind], label=curve.label, **look)
    axes.set_xlabel(x_label)
    axes.set_ylabel("rate (messages wanted per download)")
    axes.set_ylim(0.3, 1.02)
    axes.grid(alpha=0.3)
    # Above the axes, where no curve is.
    columns = len(dashes) if len(dashes) > 1 else len(curves)
    axes.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns)
    return figure


def draw_chain() -> Figure:
    """Draw Figure 2a: three sources, alpha to stay, (1 - alpha) / 2 to each other one."""
    need("plots", "a picture")
    from matplotlib.patches import Circle, FancyArrowPatch

    def arrow(start: NDArray[np.float64], end: NDArray[np.float64], bend: float) -> FancyArrowPatch:
        style = f"arc3,rad={bend}"
        return FancyArrowPatch(tuple(start), tuple(end), connectionstyle=style, color="black", arrowstyle="-|>",
                               mutation_scale=14)  # fmt: skip

    def write(place: NDArray[np.float64], text: str) -> None:
        axes.text(place[0], place[1], text, ha="center", va="center", fontsize=14)

    figure, axes = _canvas()
    places = [np.array(p) for p in ((-1.5, 1.0), (1.5, 1.0), (0.0, -1.0))]
    for place, name, outward in zip(places, "123", ((-1.0, 0.2), (1.0, 0.2), (0.0, -1.0)), strict=True):
        direction = np.array(outward) / np.hypot(*outward)
        side = np.array([-direction[1], direction[0]])
        ends = [place + 0.33 * (direction * 0.8 + sign * side * 0.6) for sign in (1, -1)]
        axes.add_patch(arrow(ends[0], ends[1], bend=-1.8))
        write(place + 0.85 * direction, r"$\alpha$")
        axes.add_patch(Circle(tuple(place), 0.33, facecolor="white", edgecolor="black"))
        write(place, name)
    for i, a in enumerate(places):
        for j, b in enumerate(places):
            if i != j:
                unit = (b - a) / np.hypot(*(b - a))
                normal = np.array([-unit[1], unit[0]])
                axes.add_patch(arrow(a + 0.36 * unit + 0.08 * normal, b - 0.36 * unit + 0.08 * normal, bend=-0.18))
                if (i, j) in ((0, 1), (1, 2), (2, 0)):
                    middle = (a + b) / 2 + 0.6 * normal
                    write(middle, r"$\frac{1-\alpha}{2}$")
    axes.set_xlim(-3, 3)
    axes.set_ylim(-2.6, 2.2)
    axes.set_aspect("equal")
    axes.axis("off")
    return figure


def _canvas() -> tuple[Figure, Axes]:
    """A figure of its own, without the global state of pyplot."""
    need("plots", "a picture")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.8), layout="constrained")
    return figure, figure.subplots()


def _save(figure: Figure, stem: Path) -> list[Path]:
    from matplotlib import rc_context

    files = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with rc_context({"svg.hashsalt": "onoff"}):  # with no date either, the same numbers give the same file
        for file in files:
            save(figure, file, dpi=200, metadata={"Date": None} if file.suffix == ".svg" else None)
    return files

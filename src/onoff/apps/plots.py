"""Costs over lags as pictures."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.errors import OnoffError
from onoff.extras import need
from onoff.files import check_file, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from onoff.apps.costs import Cost

PICTURES = (".png", ".svg", ".pdf")
LAG, COST = "lag (steps since privacy was last ON)", "cost (messages per request)"
MOST_PICTURES = 24  # chains that `plot_costs` draws


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


def _set_scales(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_ylim(bottom=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)


def plot_costs(costs: Sequence[Cost], file: Path) -> None:
    """Draw the cost over the lag: a picture for each chain, a line for each promise and scheme, bars for margins."""
    need("plots", "a picture")
    from matplotlib.figure import Figure

    chains = list(dict.fromkeys(cost.chain for cost in costs))[:MOST_PICTURES]
    across = max(1, min(4, len(chains)))
    down = max(1, math.ceil(len(chains) / across))
    figure = Figure(figsize=(1 + 4 * across, 1 + 3 * down), layout="constrained")
    for position, chain in enumerate(chains):
        axes = figure.add_subplot(down, across, position + 1)
        own = [cost for cost in costs if cost.chain == chain and cost.error is None]
        for kind in dict.fromkeys((cost.promise, cost.scheme) for cost in own):
            line = sorted((cost for cost in own if (cost.promise, cost.scheme) == kind), key=lambda cost: cost.lag)
            label = kind[0] if kind[1] is None else f"{kind[0]}, {kind[1]}"
            lags, margins = [cost.lag for cost in line], [cost.margin for cost in line]
            messages = [cost.messages or 0.0 for cost in line]
            axes.errorbar(lags, messages, margins, marker=".", capsize=2, label=label)
        axes.set_title(chain, parse_math=False)
        _set_scales(axes)
        if position == 0:
            axes.legend(frameon=False)
    figure.supxlabel(LAG)
    figure.supylabel(COST)
    save(figure, file, dpi=150)

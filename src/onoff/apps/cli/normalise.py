"""`onoff normalise`: a chain whose digits were rounded, or that loses sources, made one whose rows sum to 1."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onoff.apps.cli.options import PLAN
from onoff.errors import ChainError

if TYPE_CHECKING:
    from onoff.types import Floats

ROUNDED = 0.01  # a sum further from 1 is not that of rounded digits


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff normalise rounded.csv -o chain.json")(normalise)


def normalise(
    chain: Annotated[
        Path,
        typer.Argument(metavar="CHAIN", help="A chain file whose digits were rounded, or that has too many sources."),
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="The chain, .json or .csv, with all digits.")
    ],
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Take this source out of the chain; may be given several times."),
    ] = None,
) -> None:
    """Divide each row of a chain by its sum, and write the chain with all digits.

    With --without the source is taken out first, as if the chain had been fitted without its requests.

    Use the new file everywhere from then on: a journal belongs to one chain, to the last digit.
    """
    import numpy as np

    from onoff.files import check_file
    from onoff.model.chain import Chain
    from onoff.model.chainfile import read

    check_file(out)
    data = read(chain)
    names = data["names"]
    try:
        rows = np.array(data["matrix"], dtype=np.float64)
    except OverflowError:
        raise ChainError(f"{chain}: a number is too large for a probability") from None
    sums = rows.sum(axis=1)
    for number in np.flatnonzero(~(abs(sums - 1) <= ROUNDED)):
        raise ChainError(
            f"{chain}: row {number} ({names[number]!r}) sums to {float(sums[number])!r}, which rounded digits do not "
            "explain: mend the row, or use Chain.from_counts if these are counts",
            row=int(number),
            value=float(sums[number]),
        )
    rows, names = _without(chain, rows, list(names), without or [])
    Chain(rows / rows.sum(axis=1, keepdims=True), names).save(out)
    print(f"{out}: {len(names)} sources; the largest change of a row's sum was {float(abs(sums - 1).max()):.3g}")


def _without(chain: Path, rows: Floats, names: list[str], gone: list[str]) -> tuple[Floats, list[str]]:
    """The rows and names without these sources. P(y | x) is proportional to what it was."""
    for name in gone:
        if name not in names:
            raise ChainError(f"{chain}: has no source {name!r}, which --without names: it has {', '.join(names)}")
    kept = [i for i, name in enumerate(names) if name not in gone]
    if len(kept) < 2:
        raise ChainError(f"{chain}: {len(kept)} sources are left without these; a chain has at least 2")
    left = rows[kept][:, kept]
    for place, row in zip(kept, left, strict=True):
        if not row.any():
            raise ChainError(f"{chain}: after {names[place]!r} only sources come that are taken out: take it out, too")
    return left, [names[i] for i in kept]

"""`onoff normalise`: a chain whose digits were rounded, made one whose rows sum to 1."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.shape import PLAN
from onoff.errors import ChainError

ROUNDED = 0.01  # a sum further from 1 is not that of rounded digits


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff normalise rounded.csv -o chain.json")(normalise)


def normalise(
    chain: Annotated[Path, typer.Argument(metavar="CHAIN", help="A chain file whose digits were rounded.")],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="FILE", help="The chain, .json or .csv, with all digits.")
    ],
) -> None:
    """Divide each row of a chain by its sum, and write the chain with all digits.

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
    Chain(rows / sums[:, None], names).save(out)
    print(f"{out}: {len(names)} sources; the largest change of a row's sum was {float(abs(sums - 1).max()):.3g}")

"""Options that several commands read in the same way."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from onoff.extras import need

MOST = 100_000


def _with_dask(address: str | None) -> str | None:
    if address is not None:
        need("dask", "a Dask cluster")
    return address


Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="How many processes compute here; all cores by default.")
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS", help="Compute on the Dask cluster of this scheduler: tcp://HOST:8786.", callback=_with_dask
    ),
]


def parse_lags(text: str, least: int = 0) -> list[int]:
    """`3`, `1-10` or `1,2,5-8`, as a sorted list without repetitions, none below `least`."""
    lags: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,6})(?:-([0-9]{1,6}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not least <= first <= last <= MOST:
            raise typer.BadParameter(f"{text!r} is not a list of lags: write 3, or 1-10, or 1,2,5 ({least} to {MOST})")
        lags.update(range(first, last + 1))
    return sorted(lags)

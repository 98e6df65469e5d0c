"""What `onoff.logs.fitting.fit` can be told."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from reprlib import repr as short

from onoff.errors import LogError
from onoff.logs.reading import FORMATS
from onoff.types import is_flag, is_number, is_whole

MOST = 1000  # sources: for more no plan is made, and 64 n^2 counts would not fit into memory


@dataclass(frozen=True)
class FitOptions:
    """What `fit` can be told; everything is checked before the long work, not after it.

    `user`, `time` and `source` name columns; they are guessed if not given. Without a column of users, or with
    `one_user`, all rows are one user's. `time_format` is that of `strptime`, for times other than ISO 8601 and seconds.
    `kind` is one of `onoff.logs.reading.FORMATS`, if neither name nor look says it. `open_only` leaves out what was
    asked ON, which the journal of a client knows. Sources that are named in `without` are not in the chain: a request
    for one of them ends a sequence.

    A pause of more than `gap` seconds starts a new sequence. The `top` sources with at least `min_count` events are
    kept, the others become one. The chain, with `smoothing` added to every count, is fitted on users outside the
    share `held_out`, chosen by `seed`; they test it. Costs are reported at `lags`, and `replicates` is the number of
    bootstrap samples for their intervals (None: 50, or 20 above 50 sources, or none above 200). DuckDB uses `memory`;
    `engine="spark"` counts at the master `spark`.
    """

    user: str | None = None
    time: str | None = None
    source: str | None = None
    one_user: bool = False
    time_format: str | None = None
    kind: str | None = None
    open_only: bool = False
    without: Sequence[str] = ()
    gap: float | None = None
    top: int = 100
    min_count: int = 1
    smoothing: float = 1.0
    held_out: float = 0.2
    seed: int = 1
    lags: Sequence[int] = range(1, 11)
    replicates: int | None = None
    engine: str = "duckdb"
    spark: str = "local[*]"
    memory: str = "2GB"

    def __post_init__(self) -> None:
        for name in ("user", "time", "source", "time_format", "kind"):
            if not isinstance(getattr(self, name), str | None):
                raise LogError(f"{name} is {short(getattr(self, name))}: a word is needed, or None")
        for name in ("engine", "spark", "memory"):
            if not isinstance(getattr(self, name), str):
                raise LogError(f"{name} is {short(getattr(self, name))}: a word is needed")
        for name in ("one_user", "open_only"):
            if not is_flag(getattr(self, name)):
                raise LogError(f"{name} is {short(getattr(self, name))}: True or False is needed")
        if self.kind is not None and self.kind not in FORMATS:
            raise LogError(f"{self.kind!r} is no kind of log: {', '.join(FORMATS)}")
        if (
            isinstance(self.without, str)
            or not isinstance(self.without, Sequence)
            or not all(isinstance(name, str) for name in self.without)
        ):
            raise LogError(f"without is {short(self.without)}: a list of names is needed")
        if self.gap is not None and not (is_number(self.gap) and self.gap > 0):
            raise LogError(f"the gap is {self.gap!r}: a number of seconds above 0 is needed")
        if not (is_whole(self.top, 1) and self.top <= MOST):
            raise LogError(f"top is {self.top!r}: from 1 to {MOST} sources can be kept")
        replicates = 0 if self.replicates is None else self.replicates
        if not all(is_whole(number) for number in (self.min_count, self.seed, replicates)):
            raise LogError("min_count, seed and replicates are whole numbers of at least 0")
        if not (is_number(self.smoothing) and 0 <= self.smoothing <= sys.float_info.max):
            raise LogError(f"smoothing is {self.smoothing!r}: a finite number of at least 0 is needed")
        if not (is_number(self.held_out) and 0 <= self.held_out < 1):
            raise LogError(f"the held-out share is {self.held_out!r}: it is at least 0 and below 1")
        lags = tuple(self.lags) if isinstance(self.lags, Iterable) else ()
        if not lags or not all(is_whole(lag, 1) for lag in lags):
            raise LogError("lags are whole numbers of at least 1")
        if self.engine not in ("duckdb", "spark"):
            raise LogError(f"{self.engine!r} is no engine: duckdb or spark")
        if self.time_format is not None and self.engine != "duckdb":
            raise LogError("--time-format is read by DuckDB only: for Spark write the times in ISO 8601, or as seconds")
        object.__setattr__(self, "lags", lags)  # an iterator is gone through once
        object.__setattr__(self, "smoothing", float(self.smoothing))
        if self.gap is not None:
            object.__setattr__(self, "gap", float(min(self.gap, sys.float_info.max)))  # whole numbers know no bound

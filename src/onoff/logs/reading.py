"""Log files: what kind they are, what their columns mean, and text sequences as a table.

A log becomes a table with the columns user, time (seconds), source and row (the order of the file). CSV, JSON lines and
Parquet are read by the engine itself. Plain text with one sequence per line is written to a Parquet file first, where
the user is the number of the line and the time the place in it; so are logs of web servers (`onoff.logs.access`).
"""

from __future__ import annotations

import csv
import gzip
import re
import shutil
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from statistics import median
from typing import IO, cast

from onoff.errors import LogError
from onoff.files import only_member
from onoff.logs import sequences

KINDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".txt": "text",
    ".seq": "text",
}
FORMATS = ("csv", "json", "parquet", "text", "access")
# Names of columns in logs of many kinds, the likeliest first; compared without case and underscores.
USER = "user userid username visitor visitorid client clientid customer customerid member memberid uid device deviceid"
SESSION = "session sessionid ip person reader id"
TIME = "time timestamp ts datetime eventtime createdat when at date"
SOURCE = "source page url item itemid category channel product productid feed station path request topic event name"
TICKS = {1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}
BATCH = 200_000  # sequences written at a time
# Texts that are times. Each engine would take more than these ("1d", "1_000", "10:00:00"), but not the same.
SECONDS = " *[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)? *"
CLOCK = "([01]?[0-9]|2[0-3]):[0-9]{1,2}(:[0-9]{1,2}([.][0-9]+)?(Z| UTC|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)?)?"
ISO = f" *[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}([T ]{CLOCK})? *"
# Dates as people write them: 5/1/2024, 01.05.24, 10/Oct/2000, May 1, 2024. Which is the month, only --time-format says.
WRITTEN = re.compile(
    r" *([0-9]{1,4}[/. -]([0-9]{1,2}|[A-Za-z]{3,9})[/. -][0-9]{2,4}|[A-Za-z]{3,9}[. ]+[0-9]{1,2}),?\b.*"
)


@dataclass(frozen=True)
class Columns:
    """Which column is what. Without `user` all rows are one user's; without `time` the order of the file counts.

    `time_format` says how times are written, as `strptime` does; without it they are ISO 8601 or numbers.
    """

    user: str | None
    time: str | None
    source: str
    time_format: str | None = None


def unpacked(file: Path, directory: Path) -> Path:
    """The file itself, or the only one inside a zip archive (or a gzipped text), unpacked into `directory`."""
    if not file.exists():
        raise LogError(f"{file}: there is no such file")
    if file.is_dir():
        raise LogError(f"{file}: is a directory; name a file")
    if file.stat().st_size == 0:
        raise LogError(f"{file}: is empty")
    if zipfile.is_zipfile(file):
        with only_member(file, LogError) as (name, packed):
            inside = _copied(packed, directory / name)
        return unpacked(inside, directory)
    if file.suffix == ".gz" and KINDS.get(Path(file.stem).suffix.lower()) in (None, "text"):
        try:
            with gzip.open(file) as stream:
                return _copied(cast(IO[bytes], stream), directory / file.stem)
        except (OSError, EOFError, zlib.error) as error:
            raise LogError(f"{file}: cannot be unpacked ({error})") from None
    return file


def _copied(stream: IO[bytes], target: Path) -> Path:
    with target.open("wb") as out:
        shutil.copyfileobj(stream, out, 2**20)
    return target


def kind_of(file: Path) -> str | None:
    """csv, json, parquet or text, by the end of the name; None if it says nothing."""
    name = Path(file.stem) if file.suffix.lower() == ".gz" else file
    return KINDS.get(name.suffix.lower())


def header(file: Path) -> tuple[str, list[str]]:
    """The separator of a CSV (the commonest of comma, tab, semicolon and bar in its first line) and the names there.

    A column without a name of its own gets its number.
    """
    try:
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8-sig", newline="") as text:
            first = text.readline()
            cut = max(",\t;|", key=first.count)
            cells = next(csv.reader(chain([first], text), delimiter=cut), [])
    except (OSError, EOFError, csv.Error) as error:
        raise LogError(f"{file}: cannot be read ({getattr(error, 'strerror', None) or error})") from None
    except UnicodeDecodeError:
        raise LogError(f"{file}: is not UTF-8; save it as UTF-8") from None
    names: list[str] = []
    for number, name in enumerate(cells):
        known = name.lower() in ("", *map(str.lower, names))
        names.append(f"{name or 'column'}_{number}" if known else name)
    return cut, names


def write_sequences(file: Path, target: Path) -> int:
    """Write text with one sequence per line (see `sequences`) as a Parquet file of events; the longest length."""
    import numpy as np
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([("user", pa.int64()), ("time", pa.int32()), ("source", pa.string())])
    lines = sequences.read(file)
    first = longest = 0
    with parquet.ParquetWriter(target, schema) as writer:
        while block := list(islice(lines, BATCH)):
            lengths = np.array([len(line) for line in block])
            users = np.repeat(np.arange(first, first + len(block)), lengths)
            times = np.arange(lengths.sum()) - np.repeat(lengths.cumsum() - lengths, lengths)
            names = pa.array(list(chain.from_iterable(block)), pa.string())
            writer.write_table(pa.table([users, times.astype(np.int32), names], schema=schema))
            first, longest = first + len(block), max(longest, int(lengths.max()))
    if not first:
        raise LogError(f"{file}: there are no sequences in it")
    return longest


def choose(
    wanted: Mapping[str, str | None], samples: Mapping[str, Sequence[object]], one_user: bool = False
) -> tuple[Columns, list[str]]:
    """The columns asked for, completed by guesses: by name, times by their look, and the only one that is left.

    Where nothing says which column is the user, all rows are taken to be one user's.
    """
    found = {role: name for role, name in wanted.items() if name is not None}
    for role, name in found.items():
        if name not in samples:
            raise LogError(f"there is no column {name!r} for --{role}: there are {', '.join(samples)}")
    if one_user and "user" in found:
        raise LogError("one user, or users told apart by a column? Give --one-user or --user, not both")
    guessed: list[str] = []
    for role, hint in {"user": "" if one_user else f"{USER} {SESSION}", "time": TIME, "source": SOURCE}.items():
        if role not in found and (likely := _likely(role, hint, samples, found)) is not None:
            found[role] = likely
            guessed.append(role)
    free = [name for name in samples if name not in found.values()]
    if "source" not in found:
        if len(free) != 1:
            raise LogError(f"which column is the source? Say --source NAME: there are {', '.join(samples)}")
        found["source"] = free.pop()
        guessed.append("source")
    if (
        "user" not in found
        and not one_user
        and len(free) == 1
        and _tells_who(samples[free[0]], samples[found["source"]])
    ):
        found["user"] = free.pop()
        guessed.append("user")
    if len(set(found.values())) < len(found):
        raise LogError("one column cannot be two things: give different names to --user, --time and --source")
    notes = [f"{role} is taken to be the column {found[role]!r}; --{role} NAME says otherwise" for role in guessed]
    if "user" not in found and not one_user:
        notes.append("no column says who asked: all rows are taken to be one user's; --user NAME says otherwise")
    if "time" not in found:
        notes.append("no column of times: rows count in the order of the file; --time NAME says otherwise")
    return Columns(found.get("user"), found.get("time"), found["source"]), notes


def _likely(role: str, hint: str, samples: Mapping[str, Sequence[object]], found: Mapping[str, str]) -> str | None:
    """A column that is not taken yet and is called as the words of the hint; for times, one that looks like them."""
    free = [name for name in samples if name not in found.values()]
    plain = {name.lower().replace("_", "").replace(" ", ""): name for name in reversed(free)}
    likely = [plain[word] for word in hint.split() if word in plain]
    if role == "time" and not likely:
        likely = [name for name in free if _is_time(samples[name])]
    return likely[0] if likely else None


def refuse_unreadable_times(name: str, values: Sequence[object]) -> None:
    """Rows without a time are left out; a column of which most cells cannot be read must not vanish so."""
    known = [str(value) for value in values if value not in (None, "")]
    strange = [text for text in known if not re.fullmatch(f"{SECONDS}|{ISO}", text)]
    if 2 * len(strange) > len(known):
        raise LogError(
            f"times cannot be read: {name!r} holds {strange[0]!r}; give --time-format, such as "
            "'%m/%d/%Y %H:%M' for 05/31/2024 14:00 (ISO 8601 and seconds need none)"
        )


def refuse_dates_as_numbers(name: str, values: Sequence[object]) -> None:
    """20240501 would be a second in 1970, and a gap of 30 minutes would span months."""
    known = [str(value) for value in values if value not in (None, "")]
    if known and all(re.fullmatch(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{6})?", text) for text in known):
        raise LogError(f"the times in {name!r} look like dates without hyphens: write 2024-05-01, or leave --gap out")


def ticks_per_second(values: Sequence[object]) -> int:
    """The unit of times that are numbers: some 10^9 seconds have passed since 1970, 10^12 milliseconds and so on."""
    numbers = []
    for value in values:
        with suppress(ValueError):  # dates, or a cell that holds no time
            numbers.append(float(str(value)))
    numbers = [number for number in numbers if isfinite(number)]
    size = median(numbers) if numbers else 0.0
    return next((ticks for ticks in sorted(TICKS, reverse=True) if size > 1e8 * ticks), 1)


def _tells_who(values: Sequence[object], sources: Sequence[object]) -> bool:
    """Whether a column can be that of users: not the number of a row, nor something about the source, as a title is."""
    each_row = len(values) >= 10 and len(set(values)) == len(values)
    of_source = len(set(values)) > 1 and len(set(zip(sources, values, strict=True))) == len(set(sources))
    return not (each_row or of_source)


def _is_time(values: Sequence[object]) -> bool:
    """Whether all known values are dates or times: as such, in ISO 8601, or in a way that needs --time-format."""
    known = [value for value in values if value not in (None, "")]
    if known and all(WRITTEN.fullmatch(str(value)) for value in known):
        return True
    try:
        return bool(known) and all(isinstance(v, datetime) or (len(str(v)) > 7 and _parsed(str(v))) for v in known)
    except ValueError:
        return False


def _parsed(text: str) -> bool:
    return not text.isdigit() and bool(datetime.fromisoformat(text))

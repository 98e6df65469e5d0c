"""Logs for tests: rows with every kind of trouble, written in every format, and a plain loop that counts them."""

from __future__ import annotations

import csv
import hashlib
import json
import zipfile
from collections import Counter
from pathlib import Path

# user, time, source: no user, no time, no source, equal times, a clock that goes back, one event, a pause.
AWKWARD = [
    ("ann", "1", "x"), ("bob", "10", "y"), ("ann", "2", "y"), ("ann", "2", "z"), ("ann", "2", "x"), ("bob", "11", "x"),
    ("", "3", "x"), ("ann", "", "y"), ("ann", "soon", "y"), ("ann", "4", ""), ("ann", "5", "y"), ("ann", "6", "x"),
    ("cyd", "5", "z"), ("dan", "9", "x"), ("dan", "8", "y"), ("dan", "7", " z "), ("eve", "0", "x"),
    ("eve", "100", "y"), ("eve", "101.5", "x"), ("eve", "101.25", "y"), ("fay", "nan", "x"), ("fay", "1e400", "x"),
    ("", "", ""),
    ("gil", "2024-05-01T10:00:00Z", "x"), ("gil", "2024-05-01 10:00:01.5", "y"), ("gil", "2024-05-01T10:00:01", "z"),
    ("hal", "2024-05-01T12:00:00+02:00", "x"), ("hal", "2024-05-01 09:30:01-0030", "y"), ("hal", "1d", "z"),
    ("hal", "2024-05-01T10:00:02Z", "z"), ("hal", "10:00:00", "z"), ("hal", "1 000", "x"), ("hal", "2024-05", "y"),
    ("001", "1", "y"), ("1", "2", "x"), ("001", "3", "x"), ("o'neil, \"k\"", "1", "x"), ("o'neil, \"k\"", "2", "y"),
]  # fmt: skip


def write(rows, file: Path) -> Path:
    """The rows as CSV, JSON lines, Parquet, or a zip archive of a CSV, by the name of the file."""
    if file.suffix == ".parquet":
        columns = ([cell or None for cell in column] for column in zip(*rows, strict=True))
        write_parquet(file, **dict(zip(("user", "time", "source"), columns, strict=True)))
    elif file.suffix == ".jsonl":
        lines = ({k: v for k, v in zip(("user", "time", "source"), row, strict=True) if v} for row in rows)
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    elif file.suffix == ".zip":
        inner = write(rows, file.with_suffix(".csv"))
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(inner, "log.csv")
            archive.writestr("__MACOSX/._log.csv", "rubbish")
        inner.unlink()
    else:
        with file.open("w", newline="") as stream:
            writer = csv.writer(stream, delimiter="\t" if file.suffix == ".tsv" else ",")
            writer.writerows([("user", "time", "source"), *rows])
    return file


def write_parquet(file: Path, types: str = "VARCHAR", **columns) -> None:
    """Columns of lists as a Parquet file, all of this type, or of one type for each."""
    import duckdb

    kinds = types.split(", ") * (1 if ", " in types else len(columns))
    cells = (f"UNNEST(${name}::{kind}[]) AS {name}" for name, kind in zip(columns, kinds, strict=True))
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"CREATE TABLE log AS SELECT {', '.join(cells)}", columns)
        database.table("log").write_parquet(str(file))


def seconds(text: str) -> float | None:
    from datetime import UTC, datetime

    try:
        value = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            return None
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return value if abs(value) < 1e300 else None


def fold(user: str) -> int:
    return int(hashlib.md5(user.encode()).hexdigest()[0], 16) % 8


def counted(rows, names, gap=None, other=None, depth=3) -> dict[str, object]:
    """What `onoff.logs.count` should find, by loops over lists: after[fold, a context, the next], and so on."""
    placed: dict[str, list[tuple[float, int, int]]] = {}
    for row, (user, time, source) in enumerate(rows):
        if user and seconds(time) is not None:
            known = names.index(source.strip()) if source.strip() in names else other if source.strip() else None
            placed.setdefault(user, []).append((seconds(time), row, known))
    after, starts = Counter(), Counter()
    breaks = 0
    for user, events in placed.items():
        events.sort(key=lambda event: event[:2])
        breaks += sum(code is None for _, _, code in events)
        for sequence in split(events, gap):
            starts[sequence[0]] += 1
            for place, code in enumerate(sequence):
                for length in range(1, min(place, depth) + 1):
                    after[fold(user), *sequence[place - length : place], code] += 1
    return {"after": after, "starts": starts, "users": len(placed), "breaks": breaks}


def split(events, gap):
    """The sequences of one user, as lists of codes."""
    current, before = [], None
    for time, _, code in events:
        if code is None or (before is not None and gap is not None and time - before > gap):
            yield from [current] if current else []
            current = []
        if code is not None:
            current.append(code)
        before = time
    if current:
        yield current


def as_counters(found) -> dict[str, object]:
    """A `Transitions` in the form of `counted`."""
    after: Counter = Counter()
    for level in found.levels:
        for fold, place, code in zip(*level.counts.nonzero(), strict=True):
            after[int(fold), *level.contexts[place].tolist(), int(code)] = int(level.counts[fold, place, code])
    starts = Counter({code: int(number) for code, number in enumerate(found.starts) if number})
    return {"after": after, "starts": starts, "users": found.users, "breaks": found.breaks}

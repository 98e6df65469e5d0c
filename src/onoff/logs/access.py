"""Logs of web servers, in the Common or the Combined Log Format, as a table of events.

    192.0.2.7 - ann [10/Oct/2025:13:55:36 -0700] "GET /news?page=2 HTTP/1.1" 200 2326 "http://..." "Mozilla/5.0"

The last two fields are those of the Combined format. A user is the login name or, without one (`-`), the address
together with the program. A source is the path without its query string. Only what was fetched counts: GET, with an
answer below 400.

`python -m http.server` writes the same, but its times have no zone. Lines in which it says that it starts, stops
or did not find something are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from onoff.errors import LogError

TEXT = r'"((?:[^"\\]|\\.)*)"'  # quotes inside are written \"
LINE = re.compile(rf"(\S+) (\S+) (.+?) \[([^\]]+)\] {TEXT} (\d{{3}}) (\d+|-)(?: {TEXT} {TEXT})?(?: .*)?")
TIMES = ("%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y %H:%M:%S")  # the second is that of `python -m http.server`
BESIDE = re.compile(r"Serving HTTPS? on .*|Keyboard interrupt received.*|\S+ - - \[[^\]]+\] code \d{3}, message .*")
BATCH = 200_000  # lines written at a time
NAMES = ("user", "time", "source", "address", "login", "target")


def is_access_log(lines: Iterable[str]) -> bool:
    """Whether these lines, of which there is at least one that counts, all have the format."""
    known = [line for line in lines if line.strip() and not BESIDE.fullmatch(line.strip())]
    return bool(known) and all(_fields(line) is not None for line in known)


def write_events(file: Path, target: Path) -> int:
    """Write the events of an access log as a Parquet file, and return how many lines were left out since nothing was
    fetched.
    """
    import pyarrow as pa
    from pyarrow import parquet

    schema = pa.schema([(name, pa.float64() if name == "time" else pa.string()) for name in NAMES])
    left_out = 0
    with parquet.ParquetWriter(target, schema) as writer, file.open(encoding="utf-8", errors="replace") as lines:
        events = _events(file, lines)
        while block := list(islice(events, BATCH)):
            fetched = [event for event in block if event is not None]
            left_out += len(block) - len(fetched)
            columns = list(zip(*fetched, strict=True)) or [()] * len(NAMES)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            writer.write_table(pa.table(arrays, schema=schema))
    return left_out


def _events(file: Path, lines: Iterable[str]) -> Iterator[tuple[str, float, str, str, str, str] | None]:
    """One row for each line that counts; None if nothing was fetched. A line in another format is an error."""
    said, moment = "", 0.0
    for number, line in enumerate(lines, 1):
        if not line.strip() or BESIDE.fullmatch(line.strip()):
            continue
        fields = _fields(line)
        if fields is None:
            raise LogError(f"{file}: line {number} is not that of a web access log: {line.strip()[:60]!r}")
        address, login, clock, request, status, agent = fields
        method, _, rest = request.partition(" ")
        wanted = rest.split(" ")[0]
        if method != "GET" or not wanted or int(status) >= 400:
            yield None
            continue
        if clock != said:  # many lines of a busy server have the same second
            said, moment = clock, _moment(clock)
        user = login if login != "-" else f"{address} {agent}".strip()
        yield user, moment, wanted.split("?")[0], address, login, wanted


def _fields(line: str) -> tuple[str, str, str, str, str, str] | None:
    """Address, login, time, request, status and program (or nothing) of a line; None if it has another format."""
    found = LINE.fullmatch(line.strip())
    if found is None:
        return None
    address, _, login, clock, request, status, _, _, agent = found.groups()
    try:
        _moment(clock)
    except ValueError:
        return None
    return address, login, clock, request, status, agent or ""


def _moment(clock: str) -> float:
    """Seconds since 1970; without a zone the clock is taken for that of Greenwich, since only differences count."""
    found = datetime.strptime(clock, TIMES[":" not in clock.partition(" ")[0]])
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()

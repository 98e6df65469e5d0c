"""Log files: what kind they are, which column is what, and the table that an engine reads.

CSV, JSON lines and Parquet are read by the engine itself. The other kinds become a table first:

text: one sequence in a line, sources separated by spaces. Lines that are blank or begin with `%` are skipped. A comment
that speaks of categories says that the next line lists their names; the sequences may then give the numbers of the
categories, from 1 (the format of the MSNBC page views).

access: the Common or the Combined Log Format of web servers, or what `python -m http.server` writes:

    192.0.2.7 - ann [10/Oct/2025:13:55:36 -0700] "GET /news?page=2 HTTP/1.1" 200 2326 "http://..." "Mozilla/5.0"

A user is the login name or, without one (`-`), the address together with the program. A source is the path without its
query string. Only what was fetched counts: GET, with an answer below 400.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from pathlib import Path
from statistics import median
from typing import IO, TextIO, cast

from onoff.errors import LogError, OnoffError
from onoff.files import only_member, reading
from onoff.logs import journals
from onoff.logs.engines import Columns, DuckDB, pattern, quoted

FORMATS = ("csv", "json", "parquet", "text", "access")
KINDS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".txt": "text", ".seq": "text"}
KINDS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "json") | {".log": "access"}
# Names of columns in logs of many kinds, the likeliest first; compared without case and underscores.
USER = """user userid username visitor visitorid client clientid customer customerid member memberid uid device deviceid
    session sessionid ip person reader id"""
TIME = "time timestamp ts datetime eventtime createdat when at date"
SOURCE = "source page url item itemid category channel product productid feed station path request topic event name"
TICKS = {1_000: "milliseconds", 1_000_000: "microseconds", 1_000_000_000: "nanoseconds"}

PIECE = 100  # words in a line: DuckDB reads lines of up to 2 MB
TEXT = r'"((?:[^"\\]|\\.)*)"'  # quotes inside are written \"
LINE = rf"(\S+) (\S+) (.+?) \[([^\]]+)\] {TEXT} (\d{{3}}) (\d+|-)(?: {TEXT} {TEXT})?(?: .*)?"
PARTS = ["address", "identity", "login", "clock", "request", "status", "size", "referrer", "agent"]  # of such a line
CLOCKS = ["%d/%b/%Y:%H:%M:%S %z", "%d/%b/%Y %H:%M:%S"]  # the second, without a zone, is that of `python -m http.server`
BESIDE = r"Serving HTTPS? on .*|Keyboard interrupt received.*|\S+ - - \[[^\]]+\] code \d{3}, message .*"  # its remarks


@dataclass(frozen=True)
class Log:
    """A log as a file that an engine can read: `readable` is the format of that file, and `kind` that of the log.

    `names` are all sources, if the log tells them.
    """

    file: Path
    kind: str
    readable: str
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] | None = None


def open_log(file: Path, kind: str | None, directory: Path, open_only: bool = False, more: Sequence[Path] = ()) -> Log:
    """Open a log of this kind, or of the one that its name says. A journal may be read with `more` of them.

    Text, access logs and journals become a table in `directory` first. `open_only` leaves out what was asked ON, as
    journals know it.
    """
    plain = unpack(file, directory)
    if kind is None and journals.is_journal(plain):
        table = directory / "requests.csv"
        names, notes = journals.write_events([plain, *more], table, open_only)
        return Log(table, "journal", "csv", tuple(notes), names)
    if more:
        raise LogError(f"{file}: is no journal, and only journals are read together: join logs into one file first")
    if open_only:
        raise LogError(f"{file}: only a journal says which requests were asked OFF: leave --open-only out")
    found = kind or KINDS.get(plain.suffix.lower())
    if found is None:
        raise LogError(f"{file}: the name does not say what the log is: say --format {', '.join(FORMATS)}")
    table = directory / "events.parquet"
    if found == "access":
        left_out = _write_access(plain, table)
        note = f"lines left out: {left_out}. Nothing was fetched there (no GET, or an error)"
        return Log(table, found, "parquet", (note,) if left_out else ())
    if found == "text":
        _write_sequences(plain, table)
        return Log(table, found, "parquet")
    return Log(plain, found, found)


def unpack(file: Path, directory: Path) -> Path:
    """Unpack the only file of a zip archive, or a gzipped one, into `directory`; other files are left as they are."""
    if not file.exists():
        raise LogError(f"{file}: there is no such file")
    if file.is_dir():
        raise LogError(f"{file}: is a directory; name a file")
    if file.stat().st_size == 0:
        raise LogError(f"{file}: is empty")
    if zipfile.is_zipfile(file):
        with only_member(file, LogError) as (name, packed):
            return unpack(_copy(packed, directory / name), directory)
    if file.suffix.lower() == ".gz":
        try:
            with gzip.open(file) as stream:
                return _copy(cast(IO[bytes], stream), directory / file.stem)
        except (OSError, EOFError, zlib.error) as error:
            raise LogError(f"{file}: cannot be unpacked ({error})") from None
    return file


def _copy(stream: IO[bytes], target: Path) -> Path:
    with target.open("wb") as out:
        shutil.copyfileobj(stream, out, 2**20)
    return target


def read_sequences(path: str | PathLike[str], names: Sequence[str] = ()) -> Iterator[list[str]]:
    """Read the sequences of a text, or of the one in a zip archive, as lists of names.

    A word may also be the number of a name, counted from 1. The names are those of the file's header; without a
    header, `names`; without either, the words themselves.
    """
    file = Path(path)
    meaning, header = _meaning(names), False
    with reading(file), _open_text(file) as lines:
        for line in lines:
            if line.startswith("%"):
                header = "categories" in line
                continue
            words = line.split()
            if header and words:
                meaning, header = _meaning(words), False
            elif words:
                yield [meaning.get(word, word) for word in words]


def _meaning(names: Sequence[str]) -> dict[str, str]:
    """Map numbers and names to names; where a number is also a name, the name counts."""
    return {str(i): name for i, name in enumerate(names, 1)} | {name: name for name in names}


@contextmanager
def _open_text(file: Path) -> Iterator[TextIO]:
    if zipfile.is_zipfile(file):
        with only_member(file) as (_, stream), io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
            yield lines
    else:
        with file.open(encoding="utf-8-sig") as lines:
            yield lines


def _write_sequences(file: Path, target: Path) -> None:
    """Write text sequences as a Parquet file of events.

    The user is the number of the sequence, from 0, and the time the place in it. If every line has one word, all of
    them are one sequence.
    """
    pieces, longest = target.with_suffix(".pieces"), 0
    try:
        with pieces.open("w", encoding="utf-8") as out:
            for user, words in enumerate(read_sequences(file)):
                for start in range(0, len(words), PIECE):
                    out.write(f"{user} {start} {' '.join(words[start : start + PIECE])}\n")
                longest = max(longest, len(words))
    except LogError:
        raise
    except OnoffError as error:
        raise LogError(str(error)) from None
    if not longest:
        raise LogError(f"{file}: there are no sequences in it")
    events = f"""
        SELECT piece[1]::BIGINT AS user, piece[2]::BIGINT + UNNEST(range(len(piece) - 2)) AS time,
            UNNEST(piece[3:]) AS source
        FROM (SELECT string_split(line, ' ') AS piece FROM {_scan_lines(pieces)})"""
    if longest == 1:
        events = f"SELECT user AS time, source FROM ({events})"
    with closing(DuckDB("1GB", target.parent)) as engine, engine.explained(file):
        engine.connection.execute(f"COPY ({events}) TO {quoted(str(target))} (FORMAT parquet)")


def _write_access(file: Path, target: Path) -> int:
    """Write an access log as a Parquet file of events, and return how many lines were left out.

    A line of another format is an error.
    """
    split = f"""
        SELECT number, line, UNNEST(regexp_extract(line, {quoted(f"^(?:{LINE})$")}, {PARTS}))
        FROM (SELECT row_number() OVER () AS number, trim(line) AS line FROM {_scan_lines(file)})
        WHERE line <> '' AND NOT regexp_full_match(line, {quoted(BESIDE)})"""
    requests = f"""
        SELECT number, line, address, login,
            split_part(request, ' ', 2) AS target, split_part(target, '?', 1) AS source,
            CASE WHEN login <> '-' THEN login ELSE trim(address || ' ' || agent) END AS user,
            epoch(try_strptime(clock, {CLOCKS})) AS time,
            request LIKE 'GET %' AND target <> '' AND status < '400' AS fetched
        FROM ({split})"""
    with closing(DuckDB("1GB", target.parent)) as engine, engine.explained(file):
        engine.connection.execute(f"CREATE TEMP TABLE requests AS {requests}")
        for number, line in engine.rows("SELECT number, line FROM requests WHERE time IS NULL ORDER BY number LIMIT 1"):
            raise LogError(f"{file}: line {number} is not that of a web access log: {line[:60]!r}; or say --format")
        events = "SELECT user, time, source, address, login, target FROM requests WHERE fetched ORDER BY number"
        engine.connection.execute(f"COPY ({events}) TO {quoted(str(target))} (FORMAT parquet)")
        [(left_out,)] = engine.rows("SELECT COUNT(*) FILTER (WHERE NOT fetched) FROM requests")
    return int(left_out)


def _scan_lines(file: Path) -> str:
    """Write DuckDB's table function for the lines of a text."""
    form = "auto_detect = false, header = false, delim = '', quote = '', escape = ''"
    return f"read_csv({pattern(file)}, columns = {{'line': 'VARCHAR'}}, {form})"


def choose_columns(
    wanted: Mapping[str, str | None], names: Sequence[str], one_user: bool = False, time_format: str | None = None
) -> tuple[Columns, list[str]]:
    """Complete the columns asked for by guesses: by their names, and the source if only one is left; with notes.

    Where no name says which column is the user, all rows are taken to be one user's.
    """
    if one_user and wanted["user"] is not None:
        raise LogError("one user, or users told apart by a column? Give --one-user or --user, not both")
    found = {role: name for role, name in wanted.items() if name is not None}
    for role, name in found.items():
        if name not in names:
            raise LogError(f"there is no column {name!r} for --{role}: there are {', '.join(names)}")
    guessed: list[str] = []
    for role, words in {"user": "" if one_user else USER, "time": TIME, "source": SOURCE}.items():
        free = [name for name in names if name not in found.values()]
        plain = {name.lower().replace("_", "").replace(" ", ""): name for name in reversed(free)}
        likely = [plain[word] for word in words.split() if word in plain]
        if role == "source" and len(free) == 1:
            likely = free
        if role not in found and likely:
            found[role] = likely[0]
            guessed += [role] if likely[0] != role else []
    if "source" not in found:
        raise LogError(f"which column is the source? Say --source NAME: there are {', '.join(names)}")
    if len(set(found.values())) < len(found):
        raise LogError("one column cannot be two things: give different names to --user, --time and --source")
    notes = [f"{role} is taken to be the column {found[role]!r}; --{role} NAME says otherwise" for role in guessed]
    if "user" not in found and not one_user:
        notes.append("no column says who asked: all rows are taken to be one user's; --user NAME says otherwise")
    if "time" not in found:
        notes.append("no column of times: rows count in the order of the file; --time NAME says otherwise")
    return Columns(found.get("user"), found.get("time"), found["source"], time_format), notes


def ticks_per_second(name: str, values: Sequence[object]) -> int:
    """Tell the unit of times that are numbers: some 10^9 seconds have passed since 1970, 10^12 milliseconds and so on.

    20240501 would be a second in 1970, and a gap of 30 minutes would span months: such numbers are refused.
    """
    texts = [str(value) for value in values if value not in (None, "")]
    if texts and all(re.fullmatch(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{6})?", text) for text in texts):
        raise LogError(f"the times in {name!r} look like dates without hyphens: write 2024-05-01, or leave --gap out")
    numbers = []
    for text in texts:
        with suppress(ValueError):  # dates, or a cell that holds no time
            numbers.append(float(text))
    size = median(finite) if (finite := [number for number in numbers if isfinite(number)]) else 0.0
    return next((ticks for ticks in sorted(TICKS, reverse=True) if size > 1e8 * ticks), 1)

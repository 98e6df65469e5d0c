"""Log files: what kind they are, which column is what, and the table `log` that they become.

Every log becomes a Parquet file, unless it is one. CSV and JSON lines are read by DuckDB as text, so that names keep
their digits. The other kinds:

text: one sequence in a line, sources separated by spaces. Lines that are blank or begin with `%` are skipped. A comment
that speaks of categories says that the next line lists their names; the sequences may then give the numbers of the
categories, from 1 (the format of the MSNBC page views).

access: the Common or the Combined Log Format of web servers:

    192.0.2.7 - ann [10/Oct/2025:13:55:36 -0700] "GET /news?page=2 HTTP/1.1" 200 2326 "http://..." "Mozilla/5.0"

A user is the login name or, without one (`-`), the address together with the program. A source is the path without its
query string. Only what was fetched counts: GET, with an answer below 400.

A journal is a log, too (`onoff.logs.journals`).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import lzma
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from onoff.errors import LogError
from onoff.files import explain_reading
from onoff.logs.engines import Columns, DuckDB, identifier, parquet, pattern, quote_sql
from onoff.logs.journals import is_journal, open_requests

FORMATS = ("csv", "json", "parquet", "text", "access")
KINDS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".txt": "text", ".seq": "text"}
KINDS |= dict.fromkeys((".jsonl", ".ndjson", ".json"), "json") | {".log": "access"}
# Names of columns in logs of many kinds, the likeliest first; compared without case and underscores.
USER = """user userid username visitor visitorid client clientid customer customerid member memberid uid device deviceid
    session sessionid ip person reader id"""
TIME = "time timestamp ts datetime eventtime createdat when at date"
SOURCE = "source page url item itemid category channel product productid feed station path request topic event name"
# Units of time by their number in a second: some 10^9 seconds have passed since 1970, 10^12 milliseconds and so on.
TICKS = {1_000_000_000: "nanoseconds", 1_000_000: "microseconds", 1_000: "milliseconds"}
FIRST_TIMES = "SELECT time FROM log WHERE time IS NOT NULL LIMIT 100"

PIECE = 100  # words in a line: DuckDB reads lines of up to 2 MB
TEXT = r'"((?:[^"\\]|\\.)*)"'  # quotes inside are written \"
LINE = rf"(\S+) (\S+) (.+?) \[([^\]]+)\] {TEXT} (\d{{3}}) (\d+|-)(?: {TEXT} {TEXT})?(?: .*)?"
PARTS = ["address", "identity", "login", "clock", "request", "status", "size", "referrer", "agent"]  # of such a line
ALONE = "all rows are taken to be one user's"
GZIP = b"\x1f\x8b"
ADDED = re.compile(r"/$|^__MACOSX/|(^|/)\.[^/]*$")  # what archivers add: directories, names that begin with a dot
# Of an archive: damaged, cut, packed in a way that is not known here, or encrypted.
DAMAGED = (OSError, EOFError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, RuntimeError)


@dataclass(frozen=True)
class ReadOptions:
    """How to read a log.

    `user`, `time` and `source` name columns; guessed if not given. Without a column of users, or with
    `one_user`, all rows are one user's. `time_format` is that of `strptime`, for times other than ISO 8601 and seconds.
    `kind` is one of `FORMATS`, if the name does not say it.
    """

    user: str | None = None
    time: str | None = None
    source: str | None = None
    one_user: bool = False
    time_format: str | None = None
    kind: str | None = None


@dataclass(frozen=True)
class Log:
    """Facts about an engine's table `log`. `names` are all sources, if the log tells them."""

    columns: Columns
    notes: tuple[str, ...]
    names: tuple[str, ...] | None = None


def open_log(engine: DuckDB, files: Sequence[Path], options: ReadOptions) -> Log:
    """Define the table `log` of a file, or of several journals together."""
    plain = unpack(files[0], engine.directory)
    if len(files) > 1 and not all(map(is_journal, files)):
        raise LogError(f"{files[0]}: only journals are read together: join logs into one file first")
    if options.kind is None and is_journal(plain):
        names, requests = open_requests([plain, *files[1:]])
        events = engine.save("SELECT UNNEST($requests::VARCHAR[]) AS source", "events", {"requests": requests})
        log = Log(Columns(None, None, "source"), (), names)
    else:
        with _name_file(plain, files[0]):
            events, log = _convert(engine, plain, options)
    engine.define_log(events, log.columns)
    times = [time for (time,) in engine.rows(FIRST_TIMES)] or [0.0]
    ticks = next((ticks for ticks in TICKS if median(times) > 1e8 * ticks), 1)
    if ticks == 1:
        return log
    engine.define_log(events, log.columns, ticks)
    note = f"the times in {log.columns.time!r} look like {TICKS[ticks]} and are taken for them"
    return replace(log, notes=(*log.notes, note))


def _convert(engine: DuckDB, file: Path, options: ReadOptions) -> tuple[Path, Log]:
    """Make a Parquet file of a log that is no journal, and choose its columns."""
    kind = options.kind or KINDS.get(file.suffix.lower())
    if kind == "text":
        return _convert_text(engine, file, options.one_user)
    if kind not in FORMATS:
        raise LogError(f"{file}: the name does not say what the log is: say --format {', '.join(FORMATS)}")
    notes: list[str] = []
    if kind == "access":
        file, notes = _convert_access(engine, file)
    table = _scan_csv(file) if kind == "csv" else _scan_json(engine, file) if kind == "json" else parquet(file)
    columns, guesses = choose_columns(options, list(engine.describe(table)))
    if kind in ("csv", "json"):
        wanted = filter(None, (columns.user, columns.time, columns.source))
        file = engine.save(f"SELECT {', '.join(map(identifier, wanted))} FROM {table}", "events")
    return file, Log(columns, (*notes, *guesses))


@contextmanager
def _name_file(plain: Path, file: Path) -> Iterator[None]:
    """Let errors name the file that the caller gave, not what it was unpacked to."""
    try:
        yield
    except LogError as error:
        raise LogError(str(error).replace(str(plain), str(file))) from None


def unpack(file: Path, directory: Path) -> Path:
    """Unpack the only file of a zip archive, or a gzipped one, into `directory`; other files are left as they are.

    An archive is read to its end, and its length and checksum are compared, before any of it is believed.
    """
    with explain_reading(file, LogError), file.open("rb") as stream:
        head = stream.read(3)
        if not head:
            raise LogError(f"{file}: is empty")
    try:
        if zipfile.is_zipfile(file):
            with zipfile.ZipFile(file) as archive:
                names = [name for name in archive.namelist() if not ADDED.search(name)]
                if len(names) != 1:
                    raise LogError(f"{file}: holds {len(names)} files; an archive with one file is needed")
                with archive.open(names[0]) as packed:
                    return _unpack_copy(packed, file, directory, Path(names[0]).name)
        if head[:2] == GZIP or file.suffix.lower() == ".gz":
            with gzip.open(file) as zipped:
                return _unpack_copy(zipped, file, directory, file.name.removesuffix(".gz"))
    except DAMAGED as error:
        raise LogError(f"{file}: cannot be unpacked ({error}): copy or download it again") from None
    if head == codecs.BOM_UTF8:
        with file.open("rb") as text:
            text.seek(len(head))
            return _unpack_copy(text, file, directory, file.name)
    return file


def _unpack_copy(stream: Any, file: Path, directory: Path, name: str) -> Path:
    """Copy the content packed in `file`; unpack the copy if it is packed again."""
    place = Path(mkdtemp(dir=directory)) / name
    with place.open("wb") as out:
        shutil.copyfileobj(stream, out, 2**20)
    with _name_file(place, file):
        return unpack(place, directory)


def _scan_csv(file: Path) -> str:
    """Write DuckDB's table function for a CSV whose separator is the commonest of comma, tab, semicolon and bar.

    Nothing is left to DuckDB's guesses: it would skip lines at the start, take `#` for a comment, and make one column
    of all if a row is too short. A column without a name of its own gets its number.
    """
    with explain_reading(file, LogError), file.open(encoding="utf-8") as lines:
        first = lines.readline()
    if "\0" in first:
        raise LogError(f"{file}: the first line is not text; save the file as UTF-8")
    cut = max(",\t;|", key=first.count)
    names: list[str] = []
    for number, name in enumerate(next(csv.reader([first], delimiter=cut), [])):
        known = name.lower() in ("", *map(str.lower, names))
        names.append(f"{name or 'column'}_{number}" if known else name)
    form = f"""header = true, delim = {quote_sql(cut)}, quote = '"', escape = '"', hive_partitioning = false"""
    return f"read_csv({pattern(file)}, auto_detect = false, columns = {_as_text(names)}, {form})"


def _scan_json(engine: DuckDB, file: Path) -> str:
    """Write DuckDB's table function for JSON: objects one after the other, or a list of them.

    DuckDB would unpack .zst files by itself, without looking at their checksum.
    """
    scan = f"read_json({pattern(file)}, compression = 'uncompressed', hive_partitioning = false"
    return f"{scan}, columns = {_as_text(engine.describe(scan + ')'))})"


def _as_text(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{quote_sql(name)}: 'VARCHAR'" for name in names) + "}"


def read_sequences(path: str | PathLike[str], names: Sequence[str] = ()) -> Iterator[list[str]]:
    """Read the sequences of a text, packed or not, as lists of names.

    A word may also be the number of a name, counted from 1. The names are those of the file's header; without a
    header, `names`; without either, the words themselves.
    """
    meaning, header = _meaning(names), False
    with (
        TemporaryDirectory(prefix="onoff-sequences-") as name,
        explain_reading(path, LogError),
        unpack(Path(path), Path(name)).open(encoding="utf-8") as lines,
    ):
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


def _convert_text(engine: DuckDB, file: Path, one_user: bool) -> tuple[Path, Log]:
    """Make a Parquet file of text sequences. The user is the number of the sequence.

    If every line has one word, all of them are one sequence.
    """
    pieces, longest = engine.directory / "events.pieces", 0
    with pieces.open("w", encoding="utf-8") as out:
        for user, words in enumerate(read_sequences(file)):
            for start in range(0, len(words), PIECE):
                out.write(f"{user} {' '.join(words[start : start + PIECE])}\n")
            longest = max(longest, len(words))
    if not longest:
        raise LogError(f"{file}: there are no sequences in it")
    split = f"SELECT string_split(line, ' ') AS piece FROM {_scan_lines(pieces)}"
    events = engine.save(f"SELECT piece[1]::BIGINT AS user, UNNEST(piece[2:]) AS source FROM ({split})", "events")
    alone = one_user or longest == 1
    note = (f"one word in each line: {ALONE}",) if alone and not one_user else ()
    return events, Log(Columns(None if alone else "user", None, "source"), note)


def _convert_access(engine: DuckDB, file: Path) -> tuple[Path, list[str]]:
    """Make a Parquet file of an access log; note how many lines were left out. A line of another format is an error."""
    split = f"""
        SELECT number, line, UNNEST(regexp_extract(line, {quote_sql(f"^(?:{LINE})$")}, {PARTS}))
        FROM (SELECT row_number() OVER () AS number, trim(line) AS line FROM {_scan_lines(file)})
        WHERE line <> ''"""
    requests = f"""
        SELECT number, line, address, login,
            split_part(request, ' ', 2) AS target, split_part(target, '?', 1) AS source,
            CASE WHEN login <> '-' THEN login ELSE trim(address || ' ' || agent) END AS user,
            epoch(try_strptime(clock, '%d/%b/%Y:%H:%M:%S %z')) AS time,
            request LIKE 'GET %' AND target <> '' AND status < '400' AS fetched
        FROM ({split})"""
    engine.connection.execute(f"CREATE TEMP TABLE requests AS {requests}")
    for number, line in engine.rows("SELECT number, line FROM requests WHERE time IS NULL ORDER BY number LIMIT 1"):
        raise LogError(f"{file}: line {number} is not that of a web access log: {line[:60]!r}; or say --format")
    columns = "user, time, source, address, login, target"
    events = engine.save(f"SELECT {columns} FROM requests WHERE fetched ORDER BY number", "events")
    [(left_out,)] = engine.rows("SELECT COUNT(*) FILTER (WHERE NOT fetched) FROM requests")
    note = f"lines left out: {left_out}. Nothing was fetched there (no GET, or an error)"
    return events, [note] if left_out else []


def _scan_lines(file: Path) -> str:
    """Write DuckDB's table function for the lines of a text."""
    form = "auto_detect = false, compression = 'none', header = false, delim = '\x1f', quote = '', escape = ''"
    return f"read_csv({pattern(file)}, columns = {{'line': 'VARCHAR'}}, {form})"


def choose_columns(options: ReadOptions, names: Sequence[str]) -> tuple[Columns, list[str]]:
    """Complete the columns asked for by guesses: by their names, and the source if only one is left; with notes.

    Where no name says which column is the user, all rows are taken to be one user's.
    """
    if options.one_user and options.user is not None:
        raise LogError("one user, or users told apart by a column? Give --one-user or --user, not both")
    wanted = {"user": options.user, "time": options.time, "source": options.source}
    found = {role: name for role, name in wanted.items() if name is not None}
    for role, name in found.items():
        if name not in names:
            raise LogError(f"there is no column {name!r} for --{role}: there are {', '.join(names)}")
    notes: list[str] = []
    for role, words in {"user": "" if options.one_user else USER, "time": TIME, "source": SOURCE}.items():
        free = [name for name in names if name not in found.values()]
        plain = {name.lower().replace("_", "").replace(" ", ""): name for name in reversed(free)}
        likely = [plain[word] for word in words.split() if word in plain]
        if role == "source" and len(free) == 1:
            likely = free
        if role not in found and likely:
            found[role] = likely[0]
            if likely[0] != role:
                notes.append(f"{role} is taken to be the column {likely[0]!r}; --{role} NAME says otherwise")
    if "source" not in found:
        raise LogError(f"which column is the source? Say --source NAME: there are {', '.join(names)}")
    if "user" not in found and not options.one_user:
        notes.append(f"no column says who asked: {ALONE}; --user NAME says otherwise")
    if "time" not in found:
        notes.append("no column of times: rows count in the order of the file; --time NAME says otherwise")
    return Columns(found.get("user"), found.get("time"), found["source"], options.time_format), notes

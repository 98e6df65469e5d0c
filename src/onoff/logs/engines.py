"""The two engines that hold a log: DuckDB inside this process, and Spark on a cluster.

Each defines the same table `log`: user, time (seconds, as a float), source (text without spaces around it) and row
(which grows in the order of the file). Values that cannot be used are null. The statements of `onoff.logs.count` run on
both, unchanged.
"""

from __future__ import annotations

import csv
import logging
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from onoff.errors import LogError
from onoff.files import reading
from onoff.types import Units

SAMPLE = 100
BATCH = 100_000  # rows of Spark that are Python objects at a time
NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|(DECIMAL.*)")
FLOATS = ("FLOAT", "DOUBLE")
MOMENT = re.compile(r"DATE|TIMESTAMP.*")
# Texts that are times. Each engine would take more than these ("1d", "1_000", "10:00:00"), but not the same.
SECONDS = " *[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)? *"
CLOCK = "([01]?[0-9]|2[0-3]):[0-9]{1,2}(:[0-9]{1,2}([.][0-9]+)?(Z| UTC|[+-](0[0-9]|1[0-4])(:?[0-5][0-9])?)?)?"
ISO = f" *[0-9]{{4}}-[0-9]{{1,2}}-[0-9]{{1,2}}([T ]{CLOCK})? *"


@dataclass(frozen=True)
class Columns:
    """Which column is what. Without `user` all rows are one user's; without `time` the order of the file counts.

    `time_format` says how times are written, as `strptime` does; without it they are ISO 8601 or numbers.
    """

    user: str | None
    time: str | None
    source: str
    time_format: str | None = None


class DuckDB:
    """DuckDB in this process. What does not fit into `memory` goes to `directory` for a while.

    That works for sorting. Windows over 10^8 rows need too much memory all the same, so such a log is first rewritten
    to the directory, in parts by users.
    """

    rows_at_once = 10_000_000

    def __init__(self, memory: str, directory: Path) -> None:
        import duckdb

        self._directory = directory
        try:
            self.connection = duckdb.connect(config={"memory_limit": memory, "temp_directory": str(directory)})
        except duckdb.Error:
            raise LogError(f"{memory!r} is no amount of memory: write 4GB, say") from None
        # row_number() OVER () counts lines in the order of the file only while this order is preserved.
        self.connection.execute("SET preserve_insertion_order = true")
        self.connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")

    def samples(self, file: Path, kind: str) -> dict[str, list[object]]:
        """Read the columns of a file, with their first values."""
        hidden = "EXCLUDE (file_row_number)" if kind == "parquet" else ""
        texts = f"CAST(COLUMNS(* {hidden}) AS VARCHAR)"  # as values, times with a zone would need another package
        found = self.connection.execute(f"SELECT {texts} FROM {self._scan(file, kind)} LIMIT {SAMPLE}")
        names = [str(column[0]) for column in found.description or ()]
        rows = found.fetchall()
        return {name: [row[i] for row in rows] for i, name in enumerate(names)}

    def open(self, file: Path, kind: str, columns: Columns) -> None:
        """Define the table `log`."""
        scan, row = self._scan(file, kind), "file_row_number" if kind == "parquet" else "row_number() OVER ()"
        types = {name: kind for name, kind, *_ in self.rows(f"DESCRIBE SELECT * FROM {scan}")}
        moments = "epoch({})", "epoch(TRY_CAST({} AS TIMESTAMPTZ))"  # the second asks a calendar, which takes long
        cells = _cells(columns, types, '"', row, moments, "regexp_full_match({}, {})")
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW log AS SELECT {', '.join(cells)} FROM {scan}")

    def define_codes(self, codes: Mapping[str, int]) -> None:
        """Define the table `known` of sources with their codes."""
        cells = "UNNEST($names::VARCHAR[]) AS source, UNNEST($codes::INTEGER[]) AS code"
        values = {"names": list(codes), "codes": list(codes.values())}
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE known AS SELECT {cells}", values)

    def divide(self, rows: int) -> list[str]:
        """Name tables that together are the log and are not too large, all rows of a user in one of them."""
        if rows <= self.rows_at_once:
            return ["log"]
        place, number = self._directory / "parts", math.ceil(rows / self.rows_at_once)
        divided = f"SELECT *, hash(user) % {number} AS part FROM log"
        self.connection.execute(f"COPY ({divided}) TO {quoted(str(place))} (FORMAT parquet, PARTITION_BY part)")
        return [
            f"read_parquet({quoted(f'{part}/*.parquet')}, hive_partitioning = false)"
            for part in sorted(place.iterdir())
        ]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement that has few rows as its result."""
        return self.connection.execute(statement).fetchall()

    def arrays(self, statement: str) -> Iterator[Mapping[str, Units]]:
        """Run a statement whose result are whole numbers, perhaps millions of them."""
        yield self.connection.execute(statement).fetchnumpy()

    @contextmanager
    def explained(self, file: Path) -> Iterator[None]:
        """Turn the engine's errors into one line about the file."""

        import duckdb

        try:
            yield
        except duckdb.OutOfMemoryException:
            raise LogError(f"{file}: counting needs more memory, or more room on the disk: raise --memory") from None
        except duckdb.Error as error:
            raise LogError(f"{file}: cannot be read ({_brief(error)})") from None
        except RuntimeError as error:  # so DuckDB calls Ctrl-C
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            raise

    def close(self) -> None:
        """Let go of memory and files."""
        self.connection.interrupt()  # after Ctrl-C a query may still be at work, and closing would wait for its end
        self.connection.close()

    def _scan(self, file: Path, kind: str) -> str:
        """Write the table function for a file. Text formats are read as text, so that names keep their digits.

        Nothing is left to DuckDB's guesses: it would skip lines at the start, take `#` for a comment, read other files
        that fit a name with `*`, and make a column of a directory called `user=5`.
        """
        path = pattern(file)
        if kind == "parquet":
            return f"read_parquet({path}, file_row_number = true, hive_partitioning = false)"
        if kind == "csv":
            cut, names = header(file)
            form = f"""header = true, delim = {quoted(cut)}, quote = '"', escape = '"', hive_partitioning = false"""
            return f"read_csv({path}, auto_detect = false, columns = {_as_text(names)}, {form})"
        form = f"{path}, format = 'newline_delimited', hive_partitioning = false"
        found = self.rows(f"DESCRIBE SELECT * FROM read_json({form})")
        return f"read_json({form}, columns = {_as_text(name for name, *_ in found)})"


class Spark:
    """Spark at `master`: local[*] for this machine, or the address of a cluster that can read the file."""

    def __init__(self, master: str) -> None:
        with _without_warnings():
            from pyspark.sql import SparkSession
        self._ours = SparkSession.getActiveSession() is None
        builder = SparkSession.builder.master(master).appName("onoff fit")
        for key, value in {
            "spark.sql.session.timeZone": "UTC",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
        }.items():
            builder = builder.config(key, value)
        logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it repeats every error on stderr
        try:
            with _without_warnings():
                self.session = builder.getOrCreate()
        except Exception as error:  # Java is missing, too old, or nobody answers: the launcher has many words for it
            raise LogError(f"Spark does not start at {master} ({_brief(error)}): it needs Java 17 or later") from None

    def samples(self, file: Path, kind: str) -> dict[str, list[object]]:
        frame = self._frame(file, kind)
        rows = frame.limit(SAMPLE).collect()
        return {name: [row[i] for row in rows] for i, name in enumerate(frame.columns)}

    def open(self, file: Path, kind: str, columns: Columns) -> None:
        frame = self._frame(file, kind)
        # A file is cut into blocks that are read in any order; numbers only grow inside a block.
        block = "CAST(_metadata.file_block_start AS DECIMAL(18, 0)) * 18446744073709551616"
        row = "_metadata.row_index" if kind == "parquet" else f"{block} + monotonically_increasing_id()"
        moments = ("CAST(TRY_CAST({} AS TIMESTAMP) AS DOUBLE)",) * 2
        cells = _cells(columns, dict(frame.dtypes), "`", row, moments, "REGEXP({}, CONCAT('^', {}, '$'))")
        frame.selectExpr(*cells).createOrReplaceTempView("log")

    def define_codes(self, codes: Mapping[str, int]) -> None:
        frame = self.session.createDataFrame(list(codes.items()), "source STRING, code INT")
        frame.createOrReplaceTempView("known")

    def divide(self, rows: int) -> list[str]:  # noqa: ARG002  what fits where is Spark's own concern
        return ["log"]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.session.sql(statement).collect()]

    def arrays(self, statement: str) -> Iterator[Mapping[str, Units]]:
        frame = self.session.sql(statement)
        rows = frame.toLocalIterator()
        while block := list(islice(rows, BATCH)):
            yield dict(zip(frame.columns, np.array(block, np.int64).T, strict=True))

    @contextmanager
    def explained(self, file: Path) -> Iterator[None]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            with _without_warnings():
                yield
        except (PySparkException, Py4JError) as error:
            raise LogError(f"{file}: cannot be read ({_brief(error)})") from None

    def close(self) -> None:
        if self._ours:  # a session that the caller had before is the caller's to stop
            self.session.stop()

    def _frame(self, file: Path, kind: str) -> Any:
        reader, path = self.session.read.option("mode", "FAILFAST"), re.sub(r"([*?\[\]{}\\])", r"\\\1", str(file))
        if kind == "parquet":
            return reader.parquet(path)
        if kind == "csv":
            return reader.csv(path, header=True, sep=header(file)[0], quote='"', escape='"')
        names = self.session.read.json(path).columns
        return reader.schema(", ".join(f"{_identifier(name, '`')} STRING" for name in names)).json(path)


Engine: TypeAlias = DuckDB | Spark


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence PySpark's warnings about other packages, such as pandas, which are not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def header(file: Path) -> tuple[str, list[str]]:
    """Read the header of a CSV: its separator (the commonest of comma, tab, semicolon and bar there) and its names.

    A column without a name of its own gets its number.
    """
    with reading(file, LogError), file.open(encoding="utf-8-sig", newline="") as text:
        first = text.readline()
        cut = max(",\t;|", key=first.count)
        try:
            cells = next(csv.reader(chain([first], text), delimiter=cut), [])
        except csv.Error as error:
            raise LogError(f"{file}: cannot be read ({error})") from None
    names: list[str] = []
    for number, name in enumerate(cells):
        known = name.lower() in ("", *map(str.lower, names))
        names.append(f"{name or 'column'}_{number}" if known else name)
    return cut, names


def _cells(
    columns: Columns, types: Mapping[str, str], quote: str, row: str, moments: tuple[str, str], matches: str
) -> list[str]:
    """Write the four columns in SQL: `moments` turn a date, or a text, into seconds; `matches` tests a text."""
    source = _label(columns.source, types[columns.source].upper(), quote)
    user = "'the user'" if columns.user is None else _label(columns.user, types[columns.user].upper(), quote)
    if columns.user is not None and (kind := types[columns.user].upper()) not in FLOATS and NUMBER.fullmatch(kind):
        user = _identifier(columns.user, quote)  # numbers take less room than texts
    if columns.time is None:
        seconds = "CAST(0 AS DOUBLE)"
    elif columns.time_format is not None:  # DuckDB's: `fit` refuses it for Spark, whose letters mean other things
        written = f"CAST({_identifier(columns.time, quote)} AS STRING)"
        seconds = f"epoch(TRY_STRPTIME(TRIM({written}), {quoted(columns.time_format)}))"
    else:
        seconds = _seconds(columns.time, types, quote, moments, matches)
    # NaN is larger than every number, for both engines.
    finite = f"CASE WHEN ABS({seconds}) < 1e300 THEN {seconds} END"
    return [f"{user} AS user", f"{finite} AS time", f"NULLIF(TRIM({source}), '') AS source", f"{row} AS row"]


def _label(name: str, kind: str, quote: str) -> str:
    """Write a user or a source as text. A whole number in a column of floats has no point: 7, not 7.0."""
    value = _identifier(name, quote)
    if kind in FLOATS:
        whole = f"ABS({value}) < 1e15 AND {value} = FLOOR({value})"
        number = f"CASE WHEN ABS({value}) < 1e300 THEN CAST({value} AS STRING) END"
        return f"CASE WHEN {whole} THEN CAST(CAST({value} AS BIGINT) AS STRING) ELSE {number} END"
    return f"NULLIF(CAST({value} AS STRING), '')"


def _seconds(name: str, types: Mapping[str, str], quote: str, moments: tuple[str, str], matches: str) -> str:
    kind, column = types[name].upper(), _identifier(name, quote)
    if NUMBER.fullmatch(kind):
        return f"CAST({column} AS DOUBLE)"
    if MOMENT.fullmatch(kind):
        return moments[0].format(column)
    if kind in ("VARCHAR", "STRING"):
        number, date = (matches.format(column, quoted(pattern)) for pattern in (SECONDS, ISO))
        return f"CASE WHEN {number} THEN TRY_CAST({column} AS DOUBLE) WHEN {date} THEN {moments[1].format(column)} END"
    raise LogError(f"the column {name!r} holds values of the type {kind}: times are dates, ISO 8601 or seconds")


def _identifier(name: str, quote: str) -> str:
    return quote + name.replace(quote, 2 * quote) + quote


def _as_text(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{quoted(name)}: 'VARCHAR'" for name in names) + "}"


def quoted(value: str) -> str:
    """Write a text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def pattern(file: Path) -> str:
    """Write the name of a file for DuckDB, as a pattern that fits this file alone."""
    return quoted(re.sub(r"([*?\[])", r"[\1]", str(file)))


def _brief(error: BaseException) -> str:
    """Cut an engine's message, which may go on for pages, and its advice, which is about its own options."""
    return " ".join(re.split(r"Possible fixes|\nLINE \d", str(error))[0].split())[:300]

"""The two engines that count: DuckDB inside this process, and Spark on a cluster.

DuckDB reads every log and defines the table `log`: user, time (seconds, as a float), source (text without spaces around
it) and row (the place in the file). Values that cannot be used are null. Spark gets this table as a Parquet file. The
statements of `onoff.logs.count` run on both, unchanged.
"""

from __future__ import annotations

import logging
import math
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from onoff.errors import LogError
from onoff.types import Units

BATCH = 100_000  # rows of Spark that are Python objects at a time
SPARK = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

# What DuckDB says of a file, and what we say.
FAULTS = {
    r"Line: (\d+)\n.*Columns: (\d+) Found: (\d+)": r"line \1 has another number of cells (\3) than the header (\2)",
    r"Line: (\d+)\n.*unterminated quote": r"line \1 has a quote that is not closed, or not at the end of its cell",
    r"Line: (\d+)\n.*not utf-8": r"line \1 is not UTF-8; save the file as UTF-8",
    r"Line: (\d+)\n.*line size": r"line \1 is longer than 2 MB",
    r"Malformed JSON .* in (?:line|record/value) (\d+): ([^.]*)": r"it is not JSON near object \1: \2",
    "state machine": "its lines do not all end alike, or a quote is never closed",
}


@dataclass(frozen=True)
class Columns:
    """Columns by their meaning. Without `user` all rows are one user's; without `time` the file's order counts.

    `time_format` says how times are written, as `strptime` does; without it they are ISO 8601 or numbers.
    """

    user: str | None
    time: str | None
    source: str
    time_format: str | None = None


class DuckDB:
    """DuckDB in this process. Data beyond `memory` goes to `directory` for a while.

    This works for sorting. Windows over 10^8 rows need too much memory all the same: such a log is first rewritten
    to the directory, in parts by users.
    """

    rows_at_once = 10_000_000

    def __init__(self, memory: str, directory: Path) -> None:
        import duckdb

        self.directory = directory
        try:
            self.connection = duckdb.connect(config={"memory_limit": memory, "temp_directory": str(directory)})
        except duckdb.Error:
            raise LogError(f"{memory!r} is no amount of memory: write 4GB, say") from None
        # Copies of a text keep the order of its lines only with this setting.
        self.connection.execute("SET preserve_insertion_order = true")
        self.connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")

    def save(self, query: str, name: str, values: object = None) -> Path:
        """Write the result of a query to the directory, as a Parquet file."""
        file = self.directory / f"{name}.parquet"
        self.connection.execute(f"COPY ({query}) TO {quote_sql(str(file))} (FORMAT parquet)", values)
        return file

    def describe(self, table: str) -> dict[str, str]:
        """Return the names of the columns of a table, with their types."""
        return {name: kind for name, kind, *_ in self.rows(f"DESCRIBE SELECT * FROM {table}")}

    def define_log(self, file: Path, columns: Columns, ticks: int = 1) -> None:
        """Define the table `log` by the columns of a Parquet file. A second has so many `ticks` of its times."""
        table = parquet(file)
        types = self.describe(table)
        user = "'the user'" if columns.user is None else _label(columns.user, types[columns.user])
        time = f"{_seconds(columns, types)} / {ticks}"
        cells = (
            f"{user} AS user",
            f"CASE WHEN ABS({time}) < 1e300 THEN {time} END AS time",  # NaN is larger than every number
            f"NULLIF(TRIM(CAST({_label(columns.source, types[columns.source])} AS VARCHAR)), '') AS source",
            "file_row_number AS row",
        )
        self.connection.execute(f"CREATE OR REPLACE TEMP VIEW log AS SELECT {', '.join(cells)} FROM {table}")

    def define(self, table: str, columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> None:
        """Define a small table, whose columns have these types."""
        cells = ", ".join(f"UNNEST(${name}::{kind}[]) AS {name}" for name, kind in columns.items())
        values = {name: [row[place] for row in rows] for place, name in enumerate(columns)}
        self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT {cells}", values)

    def divide(self, rows: int) -> list[str]:
        """Name tables that together are the log and are not too large, all rows of a user in one of them."""
        if rows <= self.rows_at_once:
            return ["log"]
        place, number = self.directory / "parts", math.ceil(rows / self.rows_at_once)
        divided = f"SELECT *, hash(user) % {number} AS part FROM log"
        self.connection.execute(f"COPY ({divided}) TO {quote_sql(str(place))} (FORMAT parquet, PARTITION_BY part)")
        return [parquet(part, "/*.parquet") for part in sorted(place.iterdir())]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement that has few rows as its result."""
        return self.connection.execute(statement).fetchall()

    def arrays(self, statement: str) -> Iterator[Mapping[str, Units]]:
        """Run a statement whose result are whole numbers, perhaps millions of them."""
        yield self.connection.execute(statement).fetchnumpy()

    def close(self) -> None:
        """Free memory and files."""
        self.connection.interrupt()  # after Ctrl-C a query may still be at work, and closing would wait for its end
        self.connection.close()


class Spark:
    """Spark at `master`: local[*] for this machine, or the address of a cluster that can read the temporary directory.

    It takes over the table `log` of `reader`, and counts it as `DuckDB` does.
    """

    def __init__(self, master: str, reader: DuckDB) -> None:
        with _without_warnings():
            from pyspark.sql import SparkSession

            self._ours = SparkSession.getActiveSession() is None
            builder = SparkSession.builder.master(master).appName("onoff fit")
            for key, value in SPARK.items():
                builder = builder.config(key, value)
            logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)  # it repeats every error on stderr
            try:
                self.session = builder.getOrCreate()
            except Exception as error:  # Java is missing, too old, or nobody answers: the launcher has many words
                raise LogError(f"Spark does not start at {master} ({_brief(error)}): it needs Java 17") from None
            self.load(reader)

    def load(self, reader: DuckDB) -> None:
        """Copy the table `log`."""
        self.session.read.parquet(str(reader.save("FROM log", "log"))).createOrReplaceTempView("log")

    def define(self, table: str, columns: Mapping[str, str], rows: Sequence[tuple[Any, ...]]) -> None:
        frame = self.session.createDataFrame(rows, ", ".join(map(" ".join, columns.items())))
        frame.createOrReplaceTempView(table)

    def divide(self, rows: int) -> list[str]:  # noqa: ARG002  what fits where is Spark's own concern
        return ["log"]

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.session.sql(statement).collect()]

    def arrays(self, statement: str) -> Iterator[Mapping[str, Units]]:
        frame = self.session.sql(statement)
        rows = frame.toLocalIterator()
        while block := list(islice(rows, BATCH)):
            yield dict(zip(frame.columns, np.array(block, np.int64).T, strict=True))

    def close(self) -> None:
        if self._ours:  # a session that the caller had before is the caller's to stop
            self.session.stop()


Engine: TypeAlias = DuckDB | Spark


@contextmanager
def explain_errors(file: Path) -> Iterator[None]:
    """Turn the errors of both engines into one line about the file."""
    import duckdb

    try:
        with _without_warnings():
            yield
    except duckdb.OutOfMemoryException:
        raise LogError(f"{file}: counting needs more memory, or more room on the disk: raise --ram") from None
    except Exception as error:
        if isinstance(error.__cause__, (KeyboardInterrupt, SystemExit)):  # DuckDB makes a RuntimeError of signals
            raise error.__cause__ from None
        if type(error).__module__.partition(".")[0] not in ("_duckdb", "duckdb", "pyspark", "py4j"):
            raise
        raise LogError(f"{file}: cannot be read ({_brief(error)})") from None


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence PySpark's warnings about other packages, such as pandas, which are not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="pyspark")
        yield


def _label(name: str, kind: str) -> str:
    """Write a user or a source. Whole numbers stay (they take less room); in a column of floats 7.0 is called 7."""
    column = identifier(name)
    if kind in ("FLOAT", "DOUBLE"):
        return f"NULLIF(format('{{:.15g}}', {column}), 'nan')"
    return column if kind.endswith(("INT", "INTEGER")) else f"NULLIF(CAST({column} AS VARCHAR), '')"


def _seconds(columns: Columns, types: Mapping[str, str]) -> str:
    """Write a time as seconds since 1970; null if it is none."""
    if columns.time is None:
        return "CAST(0 AS DOUBLE)"
    column, text = identifier(columns.time), f"TRIM(CAST({identifier(columns.time)} AS VARCHAR))"
    if columns.time_format is not None:
        return f"epoch(TRY_STRPTIME({text}, {quote_sql(columns.time_format)}))"
    if types[columns.time].startswith(("DATE", "TIMESTAMP")):
        return f"epoch({column})"
    return f"COALESCE(TRY_CAST({column} AS DOUBLE), epoch(TRY_CAST({text} AS TIMESTAMPTZ)))"


def identifier(name: str) -> str:
    """Write the name of a column in SQL."""
    return '"' + name.replace('"', '""') + '"'


def quote_sql(value: str) -> str:
    """Write a text in SQL."""
    return "'" + value.replace("'", "''") + "'"


def pattern(file: Path) -> str:
    """Write the name of a file for DuckDB, as a pattern that fits this file alone."""
    return quote_sql(re.sub(r"([*?\[])", r"[\1]", str(file)))


def parquet(file: Path, below: str = "") -> str:
    """Write the table of a Parquet file, or of those `below` a directory. `user=5` in its name is no column."""
    return f"read_parquet({pattern(file)[:-1]}{below}', hive_partitioning = false)"


def _brief(error: BaseException) -> str:
    """Say what is wrong with a file; cut other messages, which may fill pages and advise on an engine's options."""
    text = str(error)
    for words, meaning in FAULTS.items():
        if found := re.search(words, text, re.DOTALL):
            return found.expand(meaning)
    return " ".join(re.split(r"Possible fixes|\nLINE \d", text)[0].split())[:300]

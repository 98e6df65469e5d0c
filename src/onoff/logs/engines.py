"""The two engines that hold logs: DuckDB inside this process, and Spark on a cluster.

Each delivers the same table: user (as it is), time (seconds, as a float), source (text without spaces around it) and
row (grows in the order of the file). Values that cannot be used are null. All that follows is one Ibis expression.
"""

from __future__ import annotations

import logging
import math
import re
import socket
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from onoff.errors import LogError
from onoff.logs.reading import ISO, SECONDS, Columns, header

SAMPLE = 100
NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|(DECIMAL.*)")
FLOATS = ("FLOAT", "DOUBLE")
MOMENT = re.compile(r"DATE|TIMESTAMP.*")
ONE_USER = "'the user'"
SIMPLE = re.compile(rf"VARCHAR|STRING|BOOLEAN|UUID|ENUM.*|{NUMBER.pattern}|{MOMENT.pattern}")


class Engine(Protocol):
    """What counting needs of an engine; `connection` is an Ibis backend."""

    connection: Any

    def samples(self, file: Path, kind: str) -> dict[str, list[object]]:
        """The columns of a file, with their first values."""

    def table(self, file: Path, kind: str, columns: Columns) -> Any:
        """The log as an Ibis table."""

    def parts(self, table: Any, rows: int) -> list[Any]:
        """The log in tables that it sorts well, all rows of a user in one of them."""

    def explained(self, file: Path) -> AbstractContextManager[None]:
        """A context in which the engine's errors become one line about the file."""

    def close(self) -> None:
        """Let go of memory and files."""


class DuckDB:
    """DuckDB in this process. What does not fit into `memory` goes to `directory` for a while.

    That works for sorting. Windows over 10^8 rows need too much memory all the same, so such a log is first rewritten
    to the directory, in parts by users.
    """

    rows_at_once = 10_000_000

    def __init__(self, memory: str, directory: Path) -> None:
        import duckdb
        import ibis

        self._directory = directory
        try:
            self.connection = ibis.duckdb.connect(memory_limit=memory, temp_directory=str(directory))
        except duckdb.Error:
            raise LogError(f"{memory!r} is no amount of memory: write 4GB, say") from None
        self.connection.raw_sql("SET TimeZone = 'UTC'; SET enable_progress_bar = false")

    def samples(self, file: Path, kind: str) -> dict[str, list[object]]:
        hidden = "EXCLUDE (file_row_number)" if kind == "parquet" else ""
        texts = f"CAST(COLUMNS(* {hidden}) AS VARCHAR)"  # as values, times with a zone would need another package
        found = self.connection.raw_sql(f"SELECT {texts} FROM {self._scan(file, kind)} LIMIT {SAMPLE}")
        rows = found.fetchall()
        return {str(column[0]): [row[i] for row in rows] for i, column in enumerate(found.description)}

    def table(self, file: Path, kind: str, columns: Columns) -> Any:
        scan, row = self._scan(file, kind), "file_row_number" if kind == "parquet" else "row_number() OVER ()"
        types = {name: kind for name, kind, *_ in self.connection.raw_sql(f"DESCRIBE SELECT * FROM {scan}").fetchall()}
        moments = "epoch({})", "epoch(TRY_CAST({} AS TIMESTAMPTZ))"  # the second asks a calendar, which takes long
        cells = _cells(columns, types, '"', row, moments, "regexp_full_match({}, {})")
        return self.connection.sql(f"SELECT {', '.join(cells)} FROM {scan}")

    def parts(self, table: Any, rows: int) -> list[Any]:
        if rows <= self.rows_at_once:
            return [table]
        place, number = self._directory / "parts", math.ceil(rows / self.rows_at_once)
        divided = f"SELECT *, hash(user) % {number} AS part FROM ({self.connection.compile(table)})"
        self.connection.raw_sql(f"COPY ({divided}) TO {_text(str(place))} (FORMAT parquet, PARTITION_BY part)")
        files = [_text(f"{part}/*.parquet") for part in sorted(place.iterdir())]
        return [self.connection.sql(f"SELECT * FROM read_parquet({one}, hive_partitioning = false)") for one in files]

    @contextmanager
    def explained(self, file: Path) -> Iterator[None]:
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
        self.connection.con.interrupt()  # after Ctrl-C a query may still be at work, and closing would wait for its end
        self.connection.disconnect()

    def _scan(self, file: Path, kind: str) -> str:
        """The table function for a file. Text formats are read as text, so that names keep their digits.

        Nothing is left to DuckDB's guesses: it would skip lines at the start, take `#` for a comment, read other files
        that fit a name with `*`, and make a column of a directory called `user=5`.
        """
        path = _text(re.sub(r"([*?\[])", r"[\1]", str(file)))
        if kind == "parquet":
            return f"read_parquet({path}, file_row_number = true, hive_partitioning = false)"
        if kind == "csv":
            cut, names = header(file)
            form = f"""header = true, delim = {_text(cut)}, quote = '"', escape = '"', hive_partitioning = false"""
            return f"read_csv({path}, auto_detect = false, columns = {_as_text(names)}, {form})"
        form = f"{path}, format = 'newline_delimited', hive_partitioning = false"
        found = self.connection.raw_sql(f"DESCRIBE SELECT * FROM read_json({form})").fetchall()
        return f"read_json({form}, columns = {_as_text(name for name, *_ in found)})"


class Spark:
    """Spark at `master`: local[*] for this machine, or the address of a cluster that can read the file."""

    def __init__(self, master: str) -> None:
        with _patient():
            import ibis
            from pyspark.sql import SparkSession
        _check_master(master)
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
            with _patient():
                self.session = builder.getOrCreate()
                self.connection = ibis.pyspark.connect(self.session)
        except Exception as error:  # Java is missing, too old, or nobody answers: the launcher has many words for it
            raise LogError(f"Spark does not start at {master} ({_brief(error)}): it needs Java 17 or later") from None

    def samples(self, file: Path, kind: str) -> dict[str, list[object]]:
        frame = self._frame(file, kind)
        rows = frame.limit(SAMPLE).collect()
        return {name: [row[i] for row in rows] for i, name in enumerate(frame.columns)}

    def table(self, file: Path, kind: str, columns: Columns) -> Any:
        frame = self._frame(file, kind)
        # A file is cut into blocks that are read in any order; numbers only grow inside a block.
        block = "CAST(_metadata.file_block_start AS DECIMAL(18, 0)) * 18446744073709551616"
        row = "_metadata.row_index" if kind == "parquet" else f"{block} + monotonically_increasing_id()"
        moments = ("CAST(TRY_CAST({} AS TIMESTAMP) AS DOUBLE)",) * 2
        cells = _cells(columns, dict(frame.dtypes), "`", row, moments, "REGEXP({}, CONCAT('^', {}, '$'))")
        frame.selectExpr(*cells).createOrReplaceTempView("onoff_log")
        return self.connection.table("onoff_log")

    def parts(self, table: Any, rows: int) -> list[Any]:  # noqa: ARG002  what fits where is Spark's own concern
        return [table]

    @contextmanager
    def explained(self, file: Path) -> Iterator[None]:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            with _patient():
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
        return reader.schema(", ".join(f"{_quoted(name, '`')} STRING" for name in names)).json(path)


def _check_master(master: str) -> None:
    """Raise `LogError` if there is no such Spark master. Spark itself would print a Java trace, after a minute."""
    if not re.fullmatch(r"local(\[.+\])?|yarn|(spark|k8s)://.+", master):
        raise LogError(f"{master!r} is no address of Spark: write local[*], spark://HOST:7077, yarn or k8s://ADDRESS")
    if not master.startswith("spark://"):
        return
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        with suppress(OSError, ValueError), socket.create_connection((host, int(port)), timeout=5):
            return
    raise LogError(f"nobody answers at {master}: start Spark there, or write local[*] for this machine")


def _cells(
    columns: Columns, types: Mapping[str, str], quote: str, row: str, moments: tuple[str, str], matches: str
) -> list[str]:
    """The four columns in SQL: `moments` turn a date, or a text, into seconds; `matches` tests a text."""
    text = "VARCHAR" if quote != "`" else "STRING"
    source = _label(columns.source, types[columns.source].upper(), quote, text)
    user = ONE_USER if columns.user is None else _label(columns.user, types[columns.user].upper(), quote, text)
    if columns.user is not None and (kind := types[columns.user].upper()) not in FLOATS and NUMBER.fullmatch(kind):
        user = _quoted(columns.user, quote)  # numbers take less room than texts
    if columns.time is None:
        seconds = "0.0"
    elif columns.time_format is not None:  # DuckDB's: `fit` refuses it for Spark, whose letters mean other things
        written = f"CAST({_quoted(columns.time, quote)} AS {text})"
        seconds = f"epoch(TRY_STRPTIME(TRIM({written}), {_text(columns.time_format)}))"
    else:
        seconds = _seconds(columns.time, types, quote, moments, matches)
    # NaN is larger than every number, for both engines.
    finite = f"CASE WHEN ABS({seconds}) < 1e300 THEN {seconds} END"
    return [f"{user} AS user", f"{finite} AS time", f"NULLIF(TRIM({source}), '') AS source", f"{row} AS row"]


def _label(name: str, kind: str, quote: str, text: str) -> str:
    """A user or a source as text. A whole number in a column of floats is written without the point: 7, not 7.0."""
    if not SIMPLE.fullmatch(kind):
        raise LogError(f"the column {name!r} holds values of the type {kind}: texts or numbers are needed")
    value = _quoted(name, quote)
    if kind in FLOATS:
        whole = f"ABS({value}) < 1e15 AND {value} = FLOOR({value})"
        number = f"CASE WHEN ABS({value}) < 1e300 THEN CAST({value} AS {text}) END"
        return f"CASE WHEN {whole} THEN CAST(CAST({value} AS BIGINT) AS {text}) ELSE {number} END"
    return f"NULLIF(CAST({value} AS {text}), '')"


def _seconds(name: str, types: Mapping[str, str], quote: str, moments: tuple[str, str], matches: str) -> str:
    kind, column = types[name].upper(), _quoted(name, quote)
    if NUMBER.fullmatch(kind):
        return f"CAST({column} AS DOUBLE)"
    if MOMENT.fullmatch(kind):
        return moments[0].format(column)
    if kind in ("VARCHAR", "STRING"):
        number, date = (matches.format(column, _text(pattern)) for pattern in (SECONDS, ISO))
        return f"CASE WHEN {number} THEN TRY_CAST({column} AS DOUBLE) WHEN {date} THEN {moments[1].format(column)} END"
    raise LogError(f"the column {name!r} holds values of the type {kind}: times are dates, ISO 8601 or seconds")


@contextmanager
def _patient() -> Iterator[None]:
    """Silence PySpark's warning about pandas 3, which is not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, 2 * quote) + quote


def _as_text(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"{_text(name)}: 'VARCHAR'" for name in names) + "}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _brief(error: BaseException) -> str:
    """The first lines of an engine's message, which may go on for pages; its advice is about its own options."""
    return " ".join(re.split(r"Possible fixes|\nLINE \d", str(error))[0].split())[:300]

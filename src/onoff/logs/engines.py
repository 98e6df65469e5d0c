"""The two engines that hold logs: DuckDB inside this process, and Spark on a cluster.

Each delivers the same table: user (as it is), time (seconds, as a float), source (text without spaces around it) and
row (grows in the order of the file). Values that cannot be used are null. All that follows is one Ibis expression.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from onoff.errors import LogError
from onoff.logs.reading import Columns, delimiter

SAMPLE = 100
NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|(DECIMAL.*)")
MOMENT = re.compile(r"DATE|TIMESTAMP.*")
SIMPLE = re.compile(rf"VARCHAR|STRING|BOOLEAN|UUID|ENUM.*|{NUMBER.pattern}|{MOMENT.pattern}")


class Engine(Protocol):
    """What counting needs of an engine; `connection` is an Ibis backend."""

    connection: Any

    def samples(self, file: Path, kind: str) -> dict[str, list[object]]:
        """The columns of a file, with their first values."""

    def table(self, file: Path, kind: str, columns: Columns) -> Any:
        """The log as an Ibis table."""

    def explained(self, file: Path) -> AbstractContextManager[None]:
        """A context in which the engine's errors become one line about the file."""

    def close(self) -> None:
        """Let go of memory and files."""


class DuckDB:
    """DuckDB in this process. What does not fit into `memory` goes to `directory` for a while."""

    def __init__(self, memory: str, directory: Path) -> None:
        import duckdb
        import ibis

        try:
            self.connection = ibis.duckdb.connect(memory_limit=memory, temp_directory=str(directory))
        except duckdb.Error:
            raise LogError(f"{memory!r} is no amount of memory: write 4GB, say") from None
        self.connection.raw_sql("SET TimeZone = 'UTC'; SET enable_progress_bar = false")

    def samples(self, file: Path, kind: str) -> dict[str, list[object]]:
        found = self.connection.raw_sql(f"SELECT * FROM {self._scan(file, kind)} LIMIT {SAMPLE}")
        rows = found.fetchall()
        return {str(column[0]): [row[i] for row in rows] for i, column in enumerate(found.description)}

    def table(self, file: Path, kind: str, columns: Columns) -> Any:
        scan, row = self._scan(file, kind), "row_number() OVER ()"
        if kind == "parquet":
            scan, row = scan.replace(")", ", file_row_number = true)"), "file_row_number"
        types = {name: kind for name, kind, *_ in self.connection.raw_sql(f"DESCRIBE SELECT * FROM {scan}").fetchall()}
        cells = _cells(columns, types, '"', row, "epoch({}::TIMESTAMP)", "epoch(TRY_CAST({} AS TIMESTAMP))")
        return self.connection.sql(f"SELECT {', '.join(cells)} FROM {scan}")

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
        """The table function for a file. Text formats are read as text, so that names keep their digits."""
        path = _text(str(file))
        if kind == "parquet":
            return f"read_parquet({path})"
        if kind == "csv":
            cut = _text(delimiter(file))
            return f"""read_csv({path}, all_varchar = true, header = true, delim = {cut}, quote = '"', escape = '"')"""
        form = f"{path}, format = 'newline_delimited'"
        found = self.connection.raw_sql(f"DESCRIBE SELECT * FROM read_json({form})").fetchall()
        return f"read_json({form}, columns = {{{', '.join(f'{_text(name)}: VARCHAR' for name, *_ in found)}}})"


class Spark:
    """Spark at `master`: local[*] for this machine, or the address of a cluster that can read the file."""

    def __init__(self, master: str) -> None:
        try:
            with _patient():
                import ibis
                from pyspark.sql import SparkSession
        except ImportError:
            raise LogError("Spark is not installed: pip install 'onoff-privacy[spark]'") from None
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
        moment = "CAST(CAST({} AS TIMESTAMP) AS DOUBLE)"
        cells = _cells(columns, dict(frame.dtypes), "`", row, moment, "CAST(TRY_CAST({} AS TIMESTAMP) AS DOUBLE)")
        frame.selectExpr(*cells).createOrReplaceTempView("onoff_log")
        return self.connection.table("onoff_log")

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
        reader = self.session.read.option("mode", "FAILFAST")
        if kind == "parquet":
            return reader.parquet(str(file))
        if kind == "csv":
            return reader.csv(str(file), header=True, sep=delimiter(file), quote='"', escape='"')
        names = self.session.read.json(str(file)).columns
        return reader.schema(", ".join(f"{_quoted(name, '`')} STRING" for name in names)).json(str(file))


def _cells(columns: Columns, types: Mapping[str, str], quote: str, row: str, moment: str, parsed: str) -> list[str]:
    """The four columns in SQL: `moment` turns a date into seconds, `parsed` tries to for a text."""
    for name in (columns.user, columns.source):
        if not SIMPLE.fullmatch(types[name].upper()):
            raise LogError(f"the column {name!r} holds values of the type {types[name]}: texts or numbers are needed")
    user, source = _quoted(columns.user, quote), _quoted(columns.source, quote)
    seconds = "0.0" if columns.time is None else _seconds(columns.time, types, quote, moment, parsed)
    if types[columns.user].upper() in ("VARCHAR", "STRING"):
        user = f"NULLIF({user}, '')"
    text = f"NULLIF(TRIM(CAST({source} AS {'VARCHAR' if quote != '`' else 'STRING'})), '')"
    # NaN is larger than every number, for both engines.
    finite = f"CASE WHEN ABS({seconds}) < 1e300 THEN {seconds} END"
    return [f"{user} AS user", f"{finite} AS time", f"{text} AS source", f"{row} AS row"]


def _seconds(name: str, types: Mapping[str, str], quote: str, moment: str, parsed: str) -> str:
    kind, column = types[name].upper(), _quoted(name, quote)
    if NUMBER.fullmatch(kind):
        return f"CAST({column} AS DOUBLE)"
    if MOMENT.fullmatch(kind):
        return moment.format(column)
    if kind in ("VARCHAR", "STRING"):
        return f"COALESCE(TRY_CAST({column} AS DOUBLE), {parsed.format(column)})"
    raise LogError(f"the column {name!r} holds values of the type {kind}: times are dates, ISO 8601 or seconds")


@contextmanager
def _patient() -> Iterator[None]:
    """PySpark warns of pandas 3, which is not used here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", ResourceWarning)
        yield


def _quoted(name: str, quote: str) -> str:
    return quote + name.replace(quote, 2 * quote) + quote


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _brief(error: BaseException) -> str:
    """The first lines of an engine's message: it may go on for pages."""
    return " ".join(str(error).split())[:300]

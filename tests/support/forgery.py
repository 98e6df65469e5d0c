"""Journals that were changed by hand, checksums and all: what a client would never have written."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from onoff.files import row_sum


@contextmanager
def forged(path: Path) -> Iterator[sqlite3.Connection]:
    """A journal's database to change; at the end every row gets the checksum of what it says by then."""
    with closing(sqlite3.connect(path)) as database, database:
        yield database
        for table, key in (("meta", "key"), ("steps", "step"), ("members", "source")):
            cursor = database.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in cursor.description[:-1]]
            for row in cursor.fetchall():
                check = row_sum(table, dict(zip(names, row[:-1], strict=True)))
                database.execute(f"UPDATE {table} SET sum = ? WHERE {key} = ?", (check, row[0]))

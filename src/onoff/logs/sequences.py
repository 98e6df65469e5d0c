"""Request sequences as a text file: one person per line, sources separated by spaces, in the order of time.

Lines that are blank or begin with `%` are skipped. A comment that speaks of categories says that the next line lists
their names; the sequences may then give the numbers of the categories, from 1 (the format of the MSNBC page views). A
zip archive is read as the one file in it (`onoff.files.only_member`).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TextIO

from onoff.files import only_member, reading


def read(path: str | PathLike[str], names: Sequence[str] = ()) -> Iterator[list[str]]:
    """The sequences of a file as lists of names. A word may also be the number of a name, counted from 1.

    The names are those of the file's header; without a header, `names`; without either, the words themselves.
    """
    file = Path(path)
    with reading(file), _text(file) as lines:
        yield from _sequences(lines, names)


def _sequences(lines: Iterable[str], names: Sequence[str]) -> Iterator[list[str]]:
    meaning = _meaning(names)
    header = False
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
    """Numbers and names to names; where a number is also a name, the name counts."""
    return {str(i): name for i, name in enumerate(names, 1)} | {name: name for name in names}


@contextmanager
def _text(file: Path) -> Iterator[TextIO]:
    from zipfile import is_zipfile

    if is_zipfile(file):
        with only_member(file) as (_, stream), io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
            yield lines
    else:
        with file.open(encoding="utf-8-sig") as lines:
            yield lines

"""Request sequences as a text file: one person per line, sources separated by spaces, in the order of time.

Lines that are blank or begin with `%` are skipped. A comment that speaks of categories says that the next line lists
their names; the sequences may then give the numbers of the categories, from 1 (the format of the MSNBC page views). A
zip archive is read as the one file in it; names that begin with `__MACOSX` are the packer's.
"""

from __future__ import annotations

import io
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TextIO

from onoff.errors import OnoffError

DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError)


def read(path: str | PathLike[str], names: Sequence[str] = ()) -> Iterator[list[str]]:
    """The sequences of a file as lists of names. A word that is no name may be the number of one, counted from 1.

    The names are those of the file's header; without a header, `names`; without either, the words themselves.
    """
    file = Path(path)
    try:
        with _text(file) as lines:
            yield from _sequences(lines, names)
    except UnicodeDecodeError:
        raise OnoffError(f"{file}: not UTF-8 text; save the sequences as plain text, one per line") from None
    except OSError as error:
        raise OnoffError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (*DAMAGED, NotImplementedError, RuntimeError) as error:  # damaged, exotic, encrypted
        raise OnoffError(f"{file}: not a zip archive that can be read ({error})") from None


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
    if not zipfile.is_zipfile(file):
        with file.open(encoding="utf-8-sig") as lines:
            yield lines
        return
    with zipfile.ZipFile(file) as archive:
        members = [
            member for member in archive.infolist() if not (member.is_dir() or member.filename.startswith("__MACOSX"))
        ]
        if len(members) != 1:
            raise OnoffError(f"{file}: holds {len(members)} files; one file of sequences is needed")
        with archive.open(members[0]) as stream, io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
            yield lines

"""Chains as files: JSON (format, version, names, matrix) and CSV (a header of names, then n rows of numbers).

Habits with memory are JSON with `contexts` instead of a `matrix`: a row for each state, and the requests it follows.

A CSV may have counts[i, j] of j after i instead of probabilities. Other entries of a JSON file are ignored.

A third form is small and quick to read; plans keep it beside them: the bytes whose SHA-256 is the fingerprint
of the chain (`Chain.content`), in a file `FINGERPRINT.chain`. It need not be believed, since its name proves it.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from contextlib import suppress
from os import PathLike
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import ChainError
from onoff.files import path_of, read_regular, read_text, reason, write_atomically

if TYPE_CHECKING:
    from onoff.model.chain import Chain

MOST_BYTES = 2**30  # of a `.chain` file: 11,000 sources
ROW_NAMES = "; no column of row names is wanted"
ENDINGS = "a chain file ends in .json, .csv or .chain"
FORMAT, VERSION = "onoff-chain", 1

log = logging.getLogger("onoff.model")


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """Read the matrix and the names of a file; their values are checked by `Chain`."""
    file = path_of(path, "the file of a chain", ChainError)
    parse = {".json": _parse_json, ".csv": _parse_csv}.get(file.suffix.lower())
    if file.suffix.lower() == ".chain":
        return _parse_content(read_regular(file, MOST_BYTES, ChainError), file)
    if parse is None:
        raise ChainError(f"{file}: {ENDINGS}", value=file.suffix)
    return parse(read_text(file, ChainError).removeprefix("\ufeff"), file)


def write(path: str | PathLike[str], chain: Chain) -> None:
    """Write atomically: a reader sees the old file or the new one, whole."""
    file = path_of(path, "the file of a chain", ChainError)
    if file.suffix.lower() == ".json":
        data = (json.dumps({"format": FORMAT, "version": VERSION, **chain.as_dict()}) + "\n").encode()
    elif file.suffix.lower() == ".csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(chain.names)
        writer.writerows(map(repr, row) for row in chain.without_memory("a CSV").P.tolist())
        data = buffer.getvalue().encode()
    elif file.suffix.lower() == ".chain":
        data = chain.without_memory("a `.chain` file").content
    else:
        raise ChainError(f"{file}: {ENDINGS}", value=file.suffix)
    try:
        write_atomically(file, data)
    except OSError as error:
        raise ChainError(f"{file}: cannot be written ({reason(error)})") from error


def keep(directory: Path, chain: Chain) -> None:
    """Write the chain into a directory under its fingerprint, unless it is there. Raises `ChainError` if it cannot.

    A link or other bytes under that name are replaced.
    """
    file = directory / f"{chain.fingerprint}.chain"
    try:
        if read_regular(file, len(chain.content), ChainError) == chain.content:
            return
    except ChainError:
        with suppress(OSError):
            file.unlink()  # to write through a link would hit another file
    write(file, chain)


def load_kept(directory: Path, fingerprint: str) -> Chain:
    """Read the chain kept under this fingerprint in a directory. Raises `ChainError` if it is another one."""
    from onoff.model.chain import Chain

    file = directory / f"{fingerprint}.chain"
    chain = Chain.load(file)
    if chain.fingerprint != fingerprint:
        raise ChainError(f"{file}: is not the chain that its name says: it was damaged or exchanged; copy it again")
    return chain


def _parse_content(content: bytes, file: Path) -> dict[str, Any]:
    head, mark, body = content.partition(b"\0")
    try:
        form, version, names = json.loads(head)
        if not mark or (form, version) != (FORMAT, VERSION) or not isinstance(names, list):
            raise ValueError
    except (ValueError, TypeError, RecursionError):
        raise ChainError(f"{file}: not a chain file: it does not begin with the names of its sources") from None
    if len(body) != 8 * len(names) ** 2:
        found = f"{len(body)} bytes of probabilities, and {len(names)} names"
        raise ChainError(f"{file}: {found}; it was cut or damaged", value=len(body))
    return {"names": names, "matrix": np.frombuffer(body, "<f8").reshape(len(names), len(names))}


def _parse_json(text: str, file: Path) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ChainError(f"{file}: not JSON (line {error.lineno}: {error.msg})", row=error.lineno) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, lists in lists in lists
        raise ChainError(f"{file}: cannot be read as JSON ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ChainError(f'{file}: not a chain file: "format" must be "{FORMAT}"')
    if data.get("version") != VERSION:
        raise ChainError(
            f"{file}: version {short(data.get('version'))} of the chain format is not known here (only {VERSION}); "
            "upgrade onoff-privacy",
            value=data.get("version"),
        )
    matrix, names = data.get("matrix"), data.get("names")
    if isinstance(names, list) and "contexts" in data:
        return data
    if not isinstance(matrix, list) or not isinstance(names, list):
        raise ChainError(f'{file}: "matrix" must be a list of rows and "names" a list of strings')
    for number, row in enumerate(matrix):
        if not isinstance(row, list) or len(row) != len(matrix):
            raise ChainError(f"{file}: row {number} does not have {len(matrix)} numbers", row=number, value=row)
    return data


def _parse_csv(text: str, file: Path) -> dict[str, Any]:
    try:
        lines = [line for line in csv.reader(io.StringIO(text, newline=""), strict=True) if line]
    except csv.Error as error:
        raise ChainError(f"{file}: not CSV ({error})") from None
    if not lines:
        raise ChainError(f"{file}: is empty; a header of names and one row for each are needed")
    names, body = lines[0], lines[1:]
    if len(body) != len(names):
        found = f"{len(names)} names in the header but {len(body)} rows below it"
        raise ChainError(f"{file}: {found}{_hint(names, body)}", value=len(body))
    matrix = [_parse_row(number, names, cells, file) for number, cells in enumerate(body)]
    if any(sum(row) != 1 for row in matrix) and all(value.is_integer() for row in matrix for value in row):
        log.info("%s: the whole numbers are taken for counts, and 1 is added to each", file)
        return _chain_of_counts(matrix, names, file)
    return {"names": names, "matrix": matrix}


def _parse_row(number: int, names: list[str], cells: list[str], file: Path) -> list[float]:
    where = f"{file}: row {number} ({names[number]!r})"
    if len(cells) != len(names):
        hint = ROW_NAMES if len(cells) == len(names) + 1 else ""
        found = f"{where} has {len(cells)} cells, the header {len(names)}{hint}"
        raise ChainError(found, row=number, value=len(cells))
    row: list[float] = []
    for cell in cells:
        try:
            if "_" in cell:  # Python takes 1_000 for a number; a spreadsheet does not
                raise ValueError
            row.append(float(cell))
        except ValueError:
            raise ChainError(f"{where} has {cell!r}: a number is needed", row=number, value=cell) from None
    return row


def _chain_of_counts(counts: list[list[float]], names: list[str], file: Path) -> dict[str, Any]:
    from onoff.model.chain import Chain

    try:
        return Chain.from_counts(counts, names).as_dict()
    except ChainError as error:
        raise ChainError(f"{file}: {error}", row=error.row, value=error.value) from None


def _hint(names: list[str], body: list[list[str]]) -> str:
    """Guess what a file that is not square is."""
    if len(names) == 1 and (len(body) <= 2 or any(mark in names[0] for mark in ";\t| ")):
        return "; is the separator a comma?"
    if len(body) > 2 * len(names):
        return "; this looks like a log of requests: `onoff fit` makes a chain of it"
    if len(names) == len(body) + 1 and all(len(cells) == len(names) for cells in body):
        return ROW_NAMES
    return ""

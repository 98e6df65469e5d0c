"""Chains as files: JSON (format, version, names, matrix) and CSV (a header of names, then n rows of numbers).

The JSON of a fitted chain also has its counts, and under "fit" how they became the matrix. `Chain.load` ignores both.

A third form is small and quick to read, and is what plans keep beside them: the bytes whose SHA-256 is the fingerprint
of the chain (`Chain.content`), in a file `FINGERPRINT.chain`. It need not be believed, since its name proves it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from contextlib import suppress
from os import PathLike
from pathlib import Path
from reprlib import repr as short
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from onoff.errors import ChainError
from onoff.files import path_of, read_regular, read_text, reason, write_atomically
from onoff.types import Units, is_whole

if TYPE_CHECKING:
    from onoff.model.chain import Chain

MOST_BYTES = 2**30  # of a `.chain` file: 11,000 sources
ROW_NAMES = "; no column of row names is wanted"
FORMAT, VERSION = "onoff-chain", 1


def read(path: str | PathLike[str]) -> dict[str, Any]:
    """The matrix and the names in a file, and what else JSON has; their values are checked by `Chain`."""
    file = path_of(path, "the file of a chain", ChainError)
    parse = {".json": _parse_json, ".csv": _parse_csv}.get(file.suffix.lower())
    if file.suffix.lower() == ".chain":
        return _parse_content(read_regular(file, MOST_BYTES, ChainError), file)
    if parse is None:
        raise ChainError(f"{file}: a chain file ends in .json, .csv or .chain", value=file.suffix)
    text = read_text(file, ChainError)
    if text.startswith("\ufeff"):
        raise ChainError(f"{file}: begins with a byte-order mark; save it as UTF-8 without BOM", row=0)
    return parse(text, file)


def write(path: str | PathLike[str], chain: Chain, more: Mapping[str, object] = MappingProxyType({})) -> None:
    """Write atomically: a reader sees the old file or the new one, whole. JSON also takes `more` entries."""
    file = path_of(path, "the file of a chain", ChainError)
    if file.suffix.lower() == ".json":
        text = json.dumps({"format": FORMAT, "version": VERSION, **chain.as_dict(), **more}) + "\n"
    elif file.suffix.lower() == ".csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(chain.names)
        writer.writerows(map(repr, row) for row in chain.P.tolist())
        text = buffer.getvalue()
    elif file.suffix.lower() != ".chain":
        raise ChainError(f"{file}: a chain file ends in .json, .csv or .chain", value=file.suffix)
    try:
        write_atomically(file, chain.content if file.suffix.lower() == ".chain" else text.encode())
    except OSError as error:
        raise ChainError(f"{file}: cannot be written ({reason(error)})") from error


def name_of(fingerprint: str) -> str:
    """The name of the file that keeps the chain with this fingerprint beside its plans."""
    return f"{fingerprint}.chain"


def keep(directory: Path, chain: Chain) -> None:
    """Write the chain into a directory under its fingerprint, unless it is there. Raises `ChainError` if it cannot.

    Whatever else has that name, such as a link or other bytes, is replaced.
    """
    file = directory / name_of(chain.fingerprint)
    try:
        if read_regular(file, len(chain.content), ChainError) == chain.content:
            return
    except ChainError:
        with suppress(OSError):
            file.unlink()  # to write through a link would hit another file
    write(file, chain)


def kept(directory: Path, fingerprint: str) -> Chain:
    """The chain that is kept in a directory under this fingerprint. Raises `ChainError` if it is another one."""
    from onoff.model.chain import Chain

    file = directory / name_of(fingerprint)
    chain = Chain.load(file)
    if chain.fingerprint != fingerprint:
        raise ChainError(f"{file}: is not the chain that its name says: it was damaged or exchanged; copy it again")
    return chain


def read_counts(path: str | PathLike[str]) -> Units:
    """The counts[i, j] of transitions from i to j that a fitted chain was saved with."""
    file = Path(path)
    if file.suffix.lower() in (".csv", ".chain"):
        raise ChainError(f"{file}: only a chain in JSON has counts", value=file.suffix)
    data = read(path)
    matrix, counts = data["matrix"], data.get("counts")
    if counts is None:
        raise ChainError(f"{file}: has no counts; `onoff fit` saves a chain with them")
    whole = isinstance(counts, list) and all(
        isinstance(row, list) and len(row) == len(matrix) and all(is_whole(count) for count in row) for row in counts
    )
    if not whole or len(counts) != len(matrix):
        raise ChainError(f"{file}: the counts are not {len(matrix)} rows of {len(matrix)} whole numbers, at least 0")
    try:
        return np.array(counts, dtype=np.int64)
    except OverflowError:
        raise ChainError(f"{file}: a count does not fit into 64 bits") from None


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
    if not isinstance(matrix, list) or not isinstance(names, list):
        raise ChainError(f'{file}: "matrix" must be a list of rows and "names" a list of strings')
    for number, row in enumerate(matrix):
        if not isinstance(row, list) or len(row) != len(matrix):
            raise ChainError(f"{file}: row {number} does not have {len(matrix)} numbers", row=number, value=row)
        for value in row:
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise ChainError(
                    f"{file}: row {number} has {short(value)}: a number is needed", row=number, value=value
                )
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
    matrix: list[list[float]] = []
    for number, cells in enumerate(body):
        if len(cells) != len(names):
            raise ChainError(
                f"{file}: row {number} ({names[number]!r}) has {len(cells)} cells, the header {len(names)}"
                + (ROW_NAMES if len(cells) == len(names) + 1 else ""),
                row=number,
                value=len(cells),
            )
        row: list[float] = []
        for cell in cells:
            try:
                if "_" in cell:  # Python takes 1_000 for a number; a spreadsheet does not
                    raise ValueError
                row.append(float(cell))
            except ValueError:
                raise ChainError(
                    f"{file}: row {number} ({names[number]!r}) has {cell!r}: a number is needed",
                    row=number,
                    value=cell,
                ) from None
        matrix.append(row)
    return {"names": names, "matrix": matrix}


def _hint(names: list[str], body: list[list[str]]) -> str:
    """What a file that is not square probably is."""
    if len(names) == 1 and (len(body) <= 2 or any(mark in names[0] for mark in ";\t| ")):
        return "; is the separator a comma?"
    if len(body) > 2 * len(names):
        return "; this looks like a log of requests: `onoff fit` makes a chain of it"
    if len(names) == len(body) + 1 and all(len(cells) == len(names) for cells in body):
        return ROW_NAMES
    return ""

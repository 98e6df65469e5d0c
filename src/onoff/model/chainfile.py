"""Chains as files: JSON (format, version, names, matrix) and CSV (a header of names, then n rows of numbers).

The JSON of a fitted chain also has its counts, and under "fit" how they became the matrix. `Chain.load` ignores both.
"""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from reprlib import repr as short
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from onoff.errors import ChainError, is_whole

ROW_NAMES = "; no column of row names is wanted"
FORMAT, VERSION = "onoff-chain", 1


def read(path: str | PathLike[str]) -> tuple[list[list[float]], list[str]]:
    """The matrix and the names in a file; their values are checked by `Chain`."""
    file = Path(path)
    parse = {".json": _parse_json, ".csv": _parse_csv}.get(file.suffix.lower())
    if parse is None:
        raise ChainError(f"{file}: a chain file ends in .json or .csv", value=file.suffix)
    try:
        text = file.read_bytes().decode("utf-8")
    except OSError as error:
        raise ChainError(f"{file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ChainError(f"{file}: byte {error.start} is not UTF-8; save the file as UTF-8") from None
    if text.startswith("\ufeff"):
        raise ChainError(f"{file}: begins with a byte-order mark; save it as UTF-8 without BOM", row=0)
    return parse(text, file)


def write(
    path: str | PathLike[str],
    matrix: NDArray[np.float64],
    names: Sequence[str],
    more: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Write atomically: a reader sees the old file or the new one, whole. JSON also takes `more` entries."""
    file = Path(path)
    rows = [[float(p) for p in row] for row in matrix]
    if file.suffix.lower() == ".json":
        text = json.dumps({"format": FORMAT, "version": VERSION, "names": list(names), "matrix": rows, **more}) + "\n"
    elif file.suffix.lower() == ".csv":
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([repr(p) for p in row] for row in rows)
        text = buffer.getvalue()
    else:
        raise ChainError(f"{file}: a chain file ends in .json or .csv", value=file.suffix)
    try:
        write_atomically(file, text.encode())
    except OSError as error:
        raise ChainError(f"{file}: cannot be written ({error.strerror})") from error


def write_atomically(file: Path, data: bytes, *, sync: bool = True) -> None:
    """Put `data` at `file` by renaming a finished sibling over it, synced unless power loss may undo it.

    Links are followed, and an existing file keeps its mode. An `OSError` names `file`.
    """
    target = Path(os.path.realpath(file))
    temporary = target.with_name(f".{secrets.token_hex(8)}")
    try:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else mode)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                if mode is not None:
                    os.fchmod(stream.fileno(), mode)
                stream.write(data)
                stream.flush()
                if sync:
                    os.fsync(stream.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from error


def read_counts(path: str | PathLike[str]) -> NDArray[np.int64]:
    """The counts[i, j] of transitions from i to j that a fitted chain was saved with."""
    matrix, _ = read(path)
    file = Path(path)
    if file.suffix.lower() != ".json":
        raise ChainError(f"{file}: only a chain in JSON has counts", value=file.suffix)
    counts = json.loads(file.read_text(encoding="utf-8")).get("counts")
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


def _parse_json(text: str, file: Path) -> tuple[list[list[float]], list[str]]:
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
    return matrix, names


def _parse_csv(text: str, file: Path) -> tuple[list[list[float]], list[str]]:
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
    return matrix, names


def _hint(names: list[str], body: list[list[str]]) -> str:
    """What a file that is not square probably is."""
    if len(names) == 1 and (len(body) <= 2 or any(mark in names[0] for mark in ";\t| ")):
        return "; is the separator a comma?"
    if len(body) > 2 * len(names):
        return "; this looks like a log of requests: `onoff fit` makes a chain of it"
    if len(names) == len(body) + 1 and all(len(cells) == len(names) for cells in body):
        return ROW_NAMES
    return ""

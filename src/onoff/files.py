"""Files: read or refused with a reason, written whole or not at all.

An error names the file and what is wrong with it. It is of the kind that the caller asks for, such as `ChainError`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from reprlib import repr as short
from typing import TYPE_CHECKING, Any

from onoff.errors import AFRESH, OnoffError
from onoff.text import LONG, plain

if TYPE_CHECKING:
    import sqlite3

JOURNAL_VERSION = "12"
BLOCK = 1 << 16
ADVICE = {
    errno.ENOSPC: "make room and try again",
    errno.EDQUOT: "make room and try again",
    errno.EFBIG: "a limit on the size of files is in force: raise it and try again",
    errno.EACCES: "change its permissions or choose another place",
    errno.EPERM: "change its permissions or choose another place",
    errno.EROFS: "choose a place that is not read-only",
    errno.EISDIR: "name a file",
    errno.EINVAL: "a file is needed: choose another place",
    errno.ENOTDIR: "a part of this path is a file: choose another place",
    errno.EEXIST: "a file is in the way: choose another place",
    errno.ENOENT: "is the path right?",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
}


@contextmanager
def explain_reading(file: str | PathLike[str], error: type[OnoffError] = OnoffError) -> Iterator[None]:
    """Turn what goes wrong while a file is read into `error`, which says why."""
    try:
        yield
    except OSError as found:
        raise error(f"{file}: cannot be read ({found.strerror or found})") from found
    except UnicodeDecodeError as found:
        raise error(f"{file}: byte {found.start} is not UTF-8; save the file as UTF-8") from None


def read_regular(file: str | PathLike[str], most: int, error: type[OnoffError] = OnoffError) -> bytes:
    """The content of a file that a stranger may have put there: of at most `most` bytes, and a file itself.

    A link may lead anywhere, a pipe would keep us waiting for its writer, and a device may never end: none is read.
    """
    with explain_reading(file, error):
        status = os.lstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise error(f"{file}: is not a file; delete it")
        if status.st_size > most:
            raise error(f"{file}: is larger than {most} bytes; is it the right file?")
        return Path(file).read_bytes()


def read_text(file: str | PathLike[str], error: type[OnoffError] = OnoffError) -> str:
    """The content of a file as UTF-8; a byte-order mark stays."""
    with explain_reading(file, error):
        return Path(file).read_bytes().decode("utf-8")


def read_json(file: str | PathLike[str], error: type[OnoffError] = OnoffError) -> Any:
    """The value that a file of JSON holds."""
    text = read_text(file, error)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as found:  # also a number of thousands of digits, and lists in lists in lists
        raise error(f"{file}: cannot be read as JSON ({plain(str(found))})") from None


def write_atomically(file: Path, data: bytes, *, sync: bool = True, mode: int = 0o666) -> None:
    """Put `data` at `file` by renaming a finished sibling over it. With `sync` it survives a loss of power.

    Links are followed. A new file has this `mode`, and an existing one keeps its own. Devices, pipes and directories
    are refused, and stay. An `OSError` names `file`.
    """
    target = Path(os.path.realpath(file))
    temporary = target.with_name(f".{os.urandom(8).hex()}")
    try:
        exists = target.exists()
        if exists and not target.is_file():
            raise OSError(errno.EINVAL, "not a file")
        kept = stat.S_IMODE(target.stat().st_mode) if exists else mode
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, kept)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                if exists:
                    os.fchmod(stream.fileno(), kept)
                stream.write(data)
                stream.flush()
                if sync:
                    os.fsync(stream.fileno())
            os.replace(temporary, target)
        except BaseException:
            os.unlink(temporary)
            raise
        if sync:
            sync_directory(target.parent)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from error


def sync_directory(directory: Path) -> None:
    """Have the names in a directory on disk: a file that was renamed into it may be lost with the power until then."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def append_line(file: Path, line: bytes, *, head: bytes, first: bytes = b"", sync: bool = True) -> None:
    """Append a line, whole or not at all, while no other process does. With `sync` it survives a loss of power.

    Half a line that a crash has left is cut off. An empty file begins with `first`. A file that begins otherwise than
    with `head` is refused and stays as it is.
    """
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
    try:
        begin = os.pread(descriptor, len(head), 0)
        if begin != head[: len(begin)]:
            raise OnoffError(f"{file}: is another kind of file, and stays as it is: name another file")
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # only now: the lock of a journal, say, is never free
        if not is_at(file, os.fstat(descriptor)):  # moved away meanwhile, and perhaps read already
            append_line(file, line, head=head, first=first, sync=sync)
            return
        end = _end_of_lines(descriptor)
        data, written = line if end else first + line, 0
        try:
            while written < len(data):
                written += os.pwrite(descriptor, data[written:], end + written)
            if sync:
                os.fsync(descriptor)
            if sync and end == 0:  # it may be new
                sync_directory(file.parent)
        except BaseException:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)


def is_at(file: str | PathLike[str], status: os.stat_result) -> bool:
    """Whether the file with this status is still the one at a path: it may have been deleted, moved or replaced."""
    try:
        return os.path.samestat(os.stat(file), status)
    except OSError:
        return False


def _end_of_lines(descriptor: int) -> int:
    """Find where the last whole line ends, and cut off what stands behind it."""
    end = size = os.fstat(descriptor).st_size
    while end > 0 and os.pread(descriptor, 1, end - 1) != b"\n":
        begin = max(0, end - BLOCK)
        end = begin + os.pread(descriptor, end - begin, begin).rfind(b"\n") + 1
    if end < size:
        os.ftruncate(descriptor, end)
    return end


def path_of(given: object, what: str, error: type[OnoffError] = OnoffError) -> Path:
    """The path that a caller gave for `what`. Raises `error` if it is not the name of a file or directory."""
    if isinstance(given, str | PathLike):
        name = fspath(given)
        if isinstance(name, str) and name and "\0" not in name:
            return Path(name)
    raise error(f"{what} is {short(given)}: the name of a file is needed")


def error_sentence(error: OSError) -> str:
    """An error of the operating system as a sentence: which file, what is wrong, what to do."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return plain(where + reason(error), LONG)


def reason(error: OSError) -> str:
    """What is wrong, and what to do, of an error of the operating system whose file is named already."""
    words = os.strerror(error.errno) if error.errno is not None else error.strerror or str(error)
    advice = ADVICE.get(error.errno or 0)
    return f"{words[:1].lower()}{words[1:]}" + (f": {advice}" if advice else "")


def check_file(file: Path) -> None:
    """Raise `OnoffError` if a file cannot be written there, as far as one can tell before."""
    if file.exists() and not file.is_file():
        raise OnoffError(f"{file}: is not a file; name a file")
    if not file.parent.is_dir():
        raise OnoffError(f"{file}: there is no directory {file.parent}; make it, or choose another place")
    _check_access(file.parent)


def make_directory(directory: Path) -> None:
    """Make a directory that can be written to, where there is none."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OnoffError(error_sentence(error)) from None
    _check_access(directory)


def _check_access(directory: Path) -> None:
    if not os.access(directory, os.W_OK | os.X_OK):
        raise OnoffError(f"{directory}: nothing can be written here; change its permissions or choose another place")


def cache_directory(name: str) -> Path:
    """The directory of this name for onoff, made or not. `RuntimeError` if the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onoff" / name


def row_sum(table: str, row: Mapping[str, Any]) -> str:
    """The checksum of a row of a journal: CRC-32, in 8 hexadecimal digits, of [table, {column: value, ...}] as JSON.

    In the place of bytes stands their CRC-32.
    """
    values = {name: zlib.crc32(value) if isinstance(value, bytes) else value for name, value in row.items()}
    return f"{zlib.crc32(json.dumps([table, values]).encode()):08x}"


def check_version(database: sqlite3.Connection, file: Path, error: type[OnoffError] = OnoffError) -> None:
    """Refuse a journal of another version. Its rows may mean something else, and look damaged."""
    [[found]] = database.execute("SELECT value FROM meta WHERE key = 'version'").fetchall()
    if found != JOURNAL_VERSION:
        version = plain(str(found), 20)
        age = "an older" if version.isdecimal() and int(version) < int(JOURNAL_VERSION) else "a newer"
        only = f"is a journal of version {version}, and only version {JOURNAL_VERSION} is read"
        raise error(f"{file}: {only}: it is of {age} version; {AFRESH}")


def read_rows(
    database: sqlite3.Connection, table: str, where: str = "", *arguments: object
) -> Iterator[dict[str, Any]]:
    """The rows of a table, by key, without their checksums. Raises `ValueError` at the first that is not what it was.

    Rows that are missing show in SQLite's own check alone (`PRAGMA integrity_check`).
    """
    cursor = database.execute(f"SELECT * FROM {table} {where} ORDER BY 1", arguments)
    names = [column[0] for column in cursor.description[:-1]]
    for *values, found in cursor:
        row = dict(zip(names, values, strict=True))
        if row_sum(table, row) != found:
            raise ValueError(f"the checksum of {values[0]!r} in {table} does not match")
        yield row

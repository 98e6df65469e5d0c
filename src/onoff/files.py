"""Files: read or refused with a reason, written whole or not at all, unpacked by one rule.

An error names the file and what is wrong with it. It is of the kind that the caller asks for, such as `ChainError`.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from reprlib import repr as short
from typing import IO, TYPE_CHECKING, Any

from onoff.errors import OnoffError
from onoff.foreign import LONG, plain

if TYPE_CHECKING:
    from zipfile import ZipInfo

BLOCK = 1 << 16
PATIENCE = 5.0  # seconds for the lock of another program
ADVICE = {
    errno.ENOSPC: "make room and try again",
    errno.EDQUOT: "make room and try again",
    errno.EFBIG: "a limit on the size of files is in force: raise it and try again",
    errno.EACCES: "change its permissions or choose another place",
    errno.EPERM: "change its permissions or choose another place",
    errno.EROFS: "choose a place that is not read-only",
    errno.EISDIR: "name a file",
    errno.ENXIO: "nobody reads from this pipe or device: choose another place",
    errno.ENOTDIR: "a part of this path is a file: choose another place",
    errno.EEXIST: "a file is in the way: choose another place",
    errno.ENOENT: "is the path right?",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}


@contextmanager
def reading(file: str | PathLike[str], error: type[OnoffError] = OnoffError) -> Iterator[None]:
    """Turn what goes wrong while a file is read into `error`, which says why."""
    try:
        yield
    except OSError as found:
        raise error(f"{file}: cannot be read ({found.strerror or found})") from found
    except UnicodeDecodeError as found:
        raise error(f"{file}: byte {found.start} is not UTF-8; save the file as UTF-8") from None


def read_bytes(file: str | PathLike[str], error: type[OnoffError] = OnoffError) -> bytes:
    """The content of a file."""
    with reading(file, error):
        return Path(file).read_bytes()


def read_regular(file: str | PathLike[str], most: int, error: type[OnoffError] = OnoffError) -> bytes:
    """The content of a file that a stranger may have put there: of at most `most` bytes, and a file itself.

    A link may lead anywhere, a pipe would keep us waiting for its writer, and a device may never end: none is read.
    """
    with reading(file, error):
        # Without O_NONBLOCK the very opening of a pipe would wait.
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise error(f"{file}: is not a file; delete it")
            if status.st_size > most:
                raise error(f"{file}: is larger than {most} bytes; is it the right file?")
            return stream.read(status.st_size)  # and no more, if it grows meanwhile


def read_text(file: str | PathLike[str], error: type[OnoffError] = OnoffError) -> str:
    """The content of a file as UTF-8; a byte-order mark stays."""
    with reading(file, error):
        return Path(file).read_bytes().decode("utf-8")


def read_json(file: str | PathLike[str], error: type[OnoffError] = OnoffError) -> Any:
    """The value that a file of JSON holds."""
    text = read_text(file, error)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as found:  # also a number of thousands of digits, and lists in lists in lists
        raise error(f"{file}: cannot be read as JSON ({plain(str(found))})") from None


@contextmanager
def only_member(archive: Path, error: type[OnoffError] = OnoffError) -> Iterator[tuple[str, IO[bytes]]]:
    """The one file in a zip archive, by its name without directories, and open. What archivers add does not count.

    That are directories, names that begin with a dot (`.DS_Store`), and all below `__MACOSX`.
    """
    import lzma
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(archive) as packed:
            members = [member for member in packed.infolist() if _was_packed(member)]
            if len(members) != 1:
                raise error(f"{archive}: holds {len(members)} files; an archive with one file is needed")
            with packed.open(members[0]) as stream:
                yield Path(members[0].filename).name, stream
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, RuntimeError) as found:
        # Damaged, packed in a way that is not known here, or encrypted.
        raise error(f"{archive}: not a zip archive that can be unpacked ({found})") from None


def _was_packed(member: ZipInfo) -> bool:
    """Whether somebody packed this file, and not the archiver."""
    path = Path(member.filename)
    return not (member.is_dir() or path.name.startswith(".") or path.parts[0] == "__MACOSX")


def write_atomically(file: Path, data: bytes, *, sync: bool = True) -> None:
    """Put `data` at `file` by renaming a finished sibling over it. With `sync` it survives a loss of power.

    Links are followed, and an existing file keeps its mode. A device or a pipe is written to and stays what it is: the
    administrator who writes to /dev/null must not put a file there. An `OSError` names `file`.
    """
    target = Path(os.path.realpath(file))
    temporary = target.with_name(f".{os.urandom(8).hex()}")
    try:
        if _is_special(file):
            return _write_into(file, data)
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


def append_line(file: Path, line: bytes, head: bytes = b"") -> None:
    """Append a line, whole or not at all; it is on disk afterwards. Half a line that a crash has left is cut off.

    A file that does not begin with `head` is refused and stays as it is. So is one that another program keeps locked.
    """
    descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        begin = os.pread(descriptor, len(head), 0)
        if begin != head[: len(begin)]:
            raise OnoffError(f"{file}: is another kind of file, and stays as it is: name another file")
        _lock(descriptor, file)  # only now: the lock of a journal, say, is never free
        end = _end_of_lines(descriptor)
        try:
            written = 0
            while written < len(line):
                written += os.pwrite(descriptor, line[written:], end + written)
            os.fsync(descriptor)
        except BaseException:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)


def _lock(descriptor: int, file: Path) -> None:
    """Lock a file. Who appends a line holds it for milliseconds; who holds it for seconds is waited for no longer."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise OnoffError(
                    f"{file}: another program keeps it locked: end that program, or name another file"
                ) from None
            time.sleep(0.01)


def _end_of_lines(descriptor: int) -> int:
    """Where the last whole line ends; what stands behind it is cut off."""
    end = size = os.fstat(descriptor).st_size
    while end > 0:
        begin = max(0, end - BLOCK)
        found = os.pread(descriptor, end - begin, begin).rfind(b"\n")
        end = begin + found + 1 if found >= 0 else begin
        if found >= 0:
            break
    if end < size:
        os.ftruncate(descriptor, end)
    return end


def _is_special(file: Path) -> bool:
    """Whether there is something at `file` that can be written to but is no file: a device, a pipe, a terminal."""
    return file.exists() and not (file.is_file() or file.is_dir())


def _write_into(file: Path, data: bytes) -> None:
    # A pipe that nobody reads is an error, and not a wait.
    descriptor = os.open(file, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)


def path_of(given: object, what: str, error: type[OnoffError] = OnoffError) -> Path:
    """The path that a caller gave for `what`. Raises `error` if it is not the name of a file or directory."""
    if isinstance(given, str | PathLike):
        name = fspath(given)
        if isinstance(name, str) and name and "\0" not in name:
            return Path(name)
    raise error(f"{what} is {short(given)}: the name of a file is needed")


def told(error: OSError) -> str:
    """An error of the operating system as a sentence: which file, what is wrong, what to do."""
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    return plain(where + reason(error), LONG)


def reason(error: OSError) -> str:
    """What is wrong, and what to do, of an error of the operating system whose file is named already."""
    words = os.strerror(error.errno) if error.errno is not None else error.strerror or str(error)
    advice = ADVICE.get(error.errno or 0)
    return f"{words[:1].lower()}{words[1:]}" + (f": {advice}" if advice else "")


def check_file(file: Path) -> None:
    """`OnoffError` if a file cannot be written there, as far as one can tell before."""
    where = file.parent
    if file.is_dir():
        raise OnoffError(f"{file}: is a directory; name a file")
    if _is_special(file):
        return  # what can be written to it shows when it is
    if not where.is_dir():
        raise OnoffError(f"{file}: there is no directory {where}; make it, or choose another place")
    if not os.access(where, os.W_OK | os.X_OK):
        raise OnoffError(f"{file}: nothing can be written to {where}; change its permissions or choose another place")


def make_directory(directory: Path) -> None:
    """Make a directory that can be written to, where there is none."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OnoffError(told(error)) from None
    if not os.access(directory, os.W_OK | os.X_OK):
        raise OnoffError(f"{directory}: nothing can be written here; change its permissions or choose another place")


def cache_directory(name: str) -> Path:
    """The directory of this name for onoff, made or not. `RuntimeError` if the user has no home."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "onoff" / name

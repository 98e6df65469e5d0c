"""Places that commands write to: looked at before the work, not after it, and errors that say which file and why."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from onoff.errors import OnoffError
from onoff.foreign import LONG, plain

ADVICE = {
    errno.ENOSPC: "make room and try again",
    errno.EDQUOT: "make room and try again",
    errno.EFBIG: "a limit on the size of files is in force: raise it and try again",
    errno.EACCES: "change its permissions or choose another place",
    errno.EPERM: "change its permissions or choose another place",
    errno.EROFS: "choose a place that is not read-only",
    errno.EISDIR: "name a file",
    errno.ENOTDIR: "a part of this path is a file: choose another place",
    errno.EEXIST: "a file is in the way: choose another place",
    errno.ENOENT: "is the path right?",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "too many files are open: raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine",
}


def told(error: OSError) -> str:
    """An error of the operating system as a sentence: which file, what is wrong, what to do."""
    words = os.strerror(error.errno) if error.errno is not None else str(error)
    where = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    advice = ADVICE.get(error.errno or 0)
    return plain(f"{where}{words[:1].lower()}{words[1:]}" + (f": {advice}" if advice else ""), LONG)


def check_file(file: Path) -> None:
    """`OnoffError` if a file cannot be written there, as far as one can tell before."""
    where = file.parent
    if file.is_dir():
        raise OnoffError(f"{file}: is a directory; name a file")
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

"""The format of a log by its look, if its name does not tell, and whether a file is plainly not a log at all.

Without this check a letter, a program or a picture would be read as sequences of words, and a chain fitted to it.
"""

from __future__ import annotations

import json
from pathlib import Path

from onoff.errors import LogError
from onoff.logs.access import is_access_log

HEAD = 2**16  # characters that are looked at
ENDS, BEGINS = ".,;:!?)]}\"'>*", "([{\"'<#*"
PROSE = 0.05  # share of words with such letters: prose has more, lists of sources hardly any
NEVER_AGAIN = 0.5  # share of words that come once, among at least `SOME` words
SOME = 40
LARGE = 2**26  # bytes: no chain file of ours that is read by people is as large, and logs are


def by_look(file: Path) -> str:
    """`parquet`, `access`, `json`, `csv` or `text`. An error that says why if it is none of them."""
    with file.open("rb") as stream:
        data = stream.read(HEAD)
    if data.startswith(b"PAR1"):
        return "parquet"
    if b"\0" in data:
        raise LogError(f"{file}: is no log: it holds bytes that no text has; logs are text or Parquet")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(data) - 4 or len(data) < HEAD:  # not just a letter that was cut at the end
            raise LogError(f"{file}: is not UTF-8 text; save it as UTF-8, or give another file") from None
        text = data[: error.start].decode("utf-8-sig")
    lines = [line for line in text.splitlines() if line.strip()]
    whole = lines[:-1] if len(data) == HEAD and len(lines) > 1 else lines  # the last may be cut
    if is_access_log(whole[:10]):
        return "access"
    if whole and all(map(_is_object, whole[:10])):
        return "json"
    if _is_table(whole[:50]):
        return "csv"
    _refuse_other_texts(file, whole)
    return "text"


def refuse_own_files(file: Path) -> None:
    """Raise an error if the file is one of ours that has no requests in it: a chain, or {name: URL}."""
    if file.stat().st_size > LARGE:
        return
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(found, dict):
        return
    if "names" in found and "matrix" in found:
        raise LogError(f"{file}: is a chain already. `onoff fit` makes one from a log or a journal: give that")
    if found and all(isinstance(url, str) and url.startswith(("http://", "https://")) for url in found.values()):
        raise LogError(
            f"{file}: is a file of URLs, and says nothing about habits. `onoff proxy --learn --urls {file}` notes what "
            "you read, and `onoff fit` makes a chain from its journal"
        )


def _is_object(line: str) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _is_table(lines: list[str]) -> bool:
    """Whether all lines have as many commas (or tabs, semicolons, bars) as the first, and no space after them."""
    if len(lines) < 2:
        return False
    cut = max(",\t;|", key=lines[0].count)
    cells = lines[0].count(cut)
    return cells > 0 and all(line.count(cut) == cells for line in lines) and f"{cut} " not in lines[0]


def _refuse_other_texts(file: Path, lines: list[str]) -> None:
    """Sequences are words between spaces that come again and again; prose and programs are not like that."""
    advice = "; if it holds sequences of sources after all, say --format text"
    words = [word for line in lines if not line.startswith("%") for word in line.split()]
    if not words:
        return  # the reader of sequences says that there are none
    if lines[0].lstrip().startswith(("<", "#!", "{", "[")):
        raise LogError(f"{file}: is no log: it begins like a page, a program or a document of JSON{advice}")
    marked = sum(word[-1] in ENDS or word[0] in BEGINS for word in words) / len(words)
    if marked > PROSE:
        raise LogError(f"{file}: is no log: {marked:.0%} of its words have commas, full stops or brackets{advice}")
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    once = sum(count == 1 for count in counts.values())
    if len(words) >= SOME and once > NEVER_AGAIN * len(words):
        raise LogError(f"{file}: is no log: most of its words come only once{advice}")

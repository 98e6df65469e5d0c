"""A message that has arrived, and what it took: for people, for programs and for a file.

All of it happens after the connection is closed. Until then nothing may depend on which source was wanted.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onoff.apps.cli.output import detail, note, print_json
from onoff.apps.cli.telling import typed
from onoff.errors import OnoffError, SourceError
from onoff.foreign import plain_text

if TYPE_CHECKING:
    from onoff.client.journalfile import Step
    from onoff.client.message import Message

MOST_NAMED = 20  # sources of a set that -v names


def deliver(
    message: Message | SourceError,
    row: Step,
    names: Sequence[str],
    announced: bool,
    journal: Path,
    out: Path | None,
    as_json: bool,
) -> None:
    """Write the message where it was wanted, and say what is worth knowing about it.

    `announced`: the next request was known, or not needed. Raises `SourceError` if there is none, or if nothing was
    published yet: a script must not take nothing for an empty message. If the message cannot be written, the error says
    how to have it without another request.
    """
    from onoff.files import told, write_atomically

    if row.made_private:
        without = "no --next was given, and the query must hide the next request"
        early = "the first two requests of a journal always are"
        note(f"this request was made ON: {early if announced else without}")
    tell_step(row, names)
    if isinstance(message, SourceError):
        raise message
    if message.error is not None:
        raise message.error
    if message.round == 0:
        raise SourceError(
            f"{message.source}: nothing has been published yet; the request is finished and counts as made",
            status=204,
            body=b"",
        )
    try:
        if out is not None:
            write_atomically(out, message.body)
        if as_json:
            print_json(fetched_data(message, row, out))
        elif out is None:
            _show(message.body)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # who reads has enough
    except OSError as error:
        once_more = typed("onoff resume --last", journal)
        words = f"{told(error)}. The request was made and is finished: {once_more} writes its message again"
        raise OnoffError(words) from error


def fetched_data(message: Message, row: Step, file: Path | None) -> dict[str, object]:
    """What `onoff get --json` prints: the message, and what its step took.

    `body` is text if `encoding` is "utf-8", and else base64; both are None if the message was written to `file`.
    `query` is what was asked for, `cost` what the law expected it to be, `bytes` what arrived for all of it.
    """
    encoding, body = None, None
    if file is None:
        try:
            encoding, body = "utf-8", message.body.decode()
        except UnicodeDecodeError:
            encoding, body = "base64", base64.b64encode(message.body).decode()
    about = {name: value for name, value in vars(message).items() if name not in ("error", "body")}
    took = {name: getattr(row, name) for name in ("lag", "plan", "cost", "bytes", "attempts")}
    return {**about, **took, "length": len(message.body), "encoding": encoding, "body": body, "file": file}


def tell_step(row: Step, names: Sequence[str]) -> None:
    """Say with -v what was asked for in a step, and what it took."""
    from onoff.apps.cli.output import counted, size
    from onoff.types import PlanName

    shown = ", ".join(names[x] for x in row.query[:MOST_NAMED]) + (", ..." if len(row.query) > MOST_NAMED else "")
    status = "ON" if row.private else f"OFF, {counted(row.lag, 'step')} after ON"
    detail(f"step {row.step} ({status}): asked for {counted(len(row.query), 'source')}: {shown}")
    took = "" if row.bytes is None else f"; {size(row.bytes)} received"
    tried = "" if row.attempts == 1 else f" in {row.attempts} attempts"
    made = PlanName.parse(row.plan)
    cost = f"about {row.cost:.3g}" if made and not made.has_table else f"{row.cost:.3f}"  # without a table: estimated
    detail(f"expected cost {cost} ({row.plan}){took}{tried}")


def _show(body: bytes) -> None:
    """Write a message to stdout as it came. On a terminal, characters that could steer it are replaced."""
    if sys.stdout.isatty():
        print(plain_text(body))
    else:
        sys.stdout.buffer.write(body)

"""`onoff check`: do requests follow the chain that all promises are relative to?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onoff.apps.cli.options import PLAN, AsJson, LogFormat, OneUser, SourceColumn, TimeColumn, TimeFormat, UserColumn
from onoff.apps.cli.output import note, plain_data, print_json
from onoff.errors import FOUND, OnoffError
from onoff.text import plain


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel=PLAN, epilog="Example: onoff check reader.journal")(check)


def check(
    requests: Annotated[Path | None, typer.Argument(metavar="FILE", help="A journal, or a log as for `fit`.")] = None,
    chain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The chain; a journal of the command line remembers it.")
    ] = None,
    user: UserColumn = None,
    time: TimeColumn = None,
    source: SourceColumn = None,
    one_user: OneUser = False,
    time_format: TimeFormat = None,
    kind: LogFormat = None,
    as_json: AsJson = False,
) -> None:
    """Test whether requests follow the chain: what is promised holds only as far as they do.

    Without a file it is the journal that `onoff get` uses. Exit code 1 if the requests do not follow the chain.
    """
    from onoff.client.connect import default_journal
    from onoff.client.status import snapshot
    from onoff.logs.follow import follows, read_journal_requests, read_log_requests
    from onoff.logs.journals import is_journal, read_journal
    from onoff.logs.read import ReadOptions
    from onoff.model.chain import Chain
    from onoff.model.misfit import LASTING

    requests = requests or default_journal()
    if is_journal(requests):
        if read_journal(requests).chain is None:
            if chain is None:
                raise OnoffError(f"{requests}: learned and has no chain: give the one to test, --chain FILE")
            note("if the chain was fitted to this journal, this is no test: it knows these requests. Test later ones")
        known = Chain.load(chain) if chain is not None else snapshot(requests).memory.known_chain(requests)
        found = read_journal_requests(requests, known)
    elif chain is None:
        raise OnoffError(f"{requests}: is not a journal, so the chain is needed: --chain FILE")
    else:
        known = Chain.load(chain)
        found = read_log_requests(requests, known, ReadOptions(user, time, source, one_user, time_format, kind))
    for words in found.notes:
        note(words)
    if found.unknown:
        such = plain(found.unknown[0], 60)
        note(f"requests for no source of the chain, such as {such}, which were not tested: {len(found.unknown)}")
    result = follows(known, found.indices, begins=found.begins)
    if as_json:
        print_json({**plain_data(result), "refuted": result.refuted, "unknown": len(found.unknown)})
    else:
        print(result.words())
        if result.refuted:
            slight = "The chain is nearly right: fit it again, to such requests too."
            wrong = "Do not rely on this chain: fit one to such requests, or ask for everything."
            print(slight if result.is_slight else wrong)
            print(f"A chain learned from N requests for n sources lasts for about {LASTING} N / n requests at best.")
    if result.refuted:
        raise typer.Exit(FOUND)

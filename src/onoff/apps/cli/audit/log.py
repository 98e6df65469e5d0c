"""`onoff audit log`: make every step of a journal again, compare it with the server's log, and attack the log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onoff.apps.cli.options import AsJson
from onoff.apps.cli.output import note, plain_data, print_json, print_table
from onoff.errors import FOUND, OnoffError
from onoff.files import read_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onoff.audit.attack import Attack, Gain
    from onoff.audit.files import Journal
    from onoff.audit.law import Finding
    from onoff.audit.log import LogAudit
    from onoff.model.chain import Chain
    from onoff.plans.plan import Plan

SHOWN = 10  # findings that are printed
ALONE = (
    "give --journal, or for the promise `both` --chain, --statuses and --plans: "
    "a stream of `past` cannot be audited without its journal"
)
UNTESTED = "whether the requests follow the chain was not tested: that takes --truth, or a journal made with a chain"


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Example: onoff audit log seen.jsonl --chain chain.json --journal reader.journal --plans plans",
    )(log)


def log(
    log: Annotated[Path, typer.Argument(metavar="LOG", help="What `onoff serve --transcript` wrote.")],
    chain: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The chain of the requests; by default the journal's.")
    ] = None,
    journal: Annotated[Path | None, typer.Option(metavar="FILE", help="The client's journal.")] = None,
    plans: Annotated[Path | None, typer.Option(metavar="DIR", help="Where the client's plans are kept.")] = None,
    laws: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The laws that a client of the promise `past` recorded.")
    ] = None,
    remake: Annotated[
        bool,
        typer.Option("--remake/--no-remake", help="Make the laws of `past` again, and compare them with those noted."),
    ] = True,
    other: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Another journal of this client; repeatable.")
    ] = None,
    attack: Annotated[
        bool | None, typer.Option("--attack/--no-attack", help="Attack the log even if it takes long, or never.")
    ] = None,
    statuses: Annotated[
        str | None, typer.Option(metavar="1001..|FILE", help="Without a journal: 1 for each step made ON.")
    ] = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Without a journal: the requests, one name in a line.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make every step of a journal again, compare it with the server's log, and attack that.

    Law, rules, draw, versions, log and random numbers of every step are checked, with no error rate but that of the
    test for uniform numbers (1 in 10,000). The first wrong step is named with what was expected there. The installed
    code makes the laws of the promise `past` again: so the audit finds a client that lets the request choose among
    right laws. Laws of another version or machine need --laws and --no-remake, which leaves that open.

    The last line is the verdict. PASSED is exit code 0; FAILED is 1, and so is NO VERDICT: a step could not be checked,
    or the requests do not follow the chain.
    """
    from onoff.apps.terminal import progress
    from onoff.audit.files import read_journal
    from onoff.audit.log import Exhibits, audit_log
    from onoff.client.laws import maker
    from onoff.client.status import snapshot
    from onoff.logs.follow import follows
    from onoff.model.chain import Chain
    from onoff.past import Candidates
    from onoff.past.step import prepare

    alone = chain is not None and statuses is not None and laws is None
    if not alone if journal is None else statuses is not None:
        raise OnoffError(ALONE)
    loaded = snapshot(journal).memory.known_chain(journal) if chain is None and journal else Chain.load(chain or "")
    noted = None if journal is None else read_journal(journal, loaded)
    both = loaded.depth == 1 if noted is None else noted.promise == "both"
    shelf = _plans(loaded, plans) if both else {}
    if noted is None and not shelf:
        raise OnoffError(ALONE)
    if laws is not None and both:
        raise OnoffError("--laws is for the promise `past`: this client has plans")
    if plans is not None and not both:
        raise OnoffError("--plans is for the promise `both`: this client has laws (--laws)")
    given, engine = _truth(truth, loaded), None
    if not both and remake:
        engine = lambda *public: prepare(Candidates(*public))  # noqa: E731
    found = audit_log(
        loaded,
        log,
        Exhibits(shelf, laws, engine, maker()),
        journal,
        statuses=() if statuses is None else _statuses(statuses),
        truth=given or None,
        others=other or [],
        attacked=attack,
        progress=progress,
    )
    requests = given if noted is None else _requests(noted)
    following = follows(loaded, requests) if requests and not (noted is not None and noted.learns) else None
    found = replace(found, refuted=following is not None and following.refuted)
    if as_json:
        habits = None if following is None else {**plain_data(following), "refuted": found.refuted}
        print_json({**_as_dict(found, loaded), "following": habits})
    else:
        named = tuple(_name_sources(finding, loaded) for finding in found.verdict.findings)
        found = replace(found, verdict=replace(found.verdict, findings=named))
        _print(found)
        print(UNTESTED if following is None else following.words())
        print(found)
    if not found.passed:
        raise typer.Exit(FOUND)


def _requests(journal: Journal) -> list[int]:
    """Read a journal's requests after the erased ones."""
    requests = [step.request for step in journal.steps]
    erased = max((t for t, request in enumerate(requests) if request is None), default=-1)
    return [request for request in requests[erased + 1 :] if request is not None]


def _plans(chain: Chain, directory: Path | None) -> dict[str, Plan]:
    """Load the plans that are kept for the chain, by their names. Races need none: they are run again."""
    from onoff.errors import PlanError
    from onoff.plans.store import PlanStore

    if directory is not None and not directory.is_dir():
        raise OnoffError(f"{directory}: there is no such directory of plans")
    store = PlanStore(chain, directory, make=False)
    found = {}
    for lag in sorted(store.lags()):
        try:
            plan = store.load(lag)
            found[plan.name] = plan
        except PlanError as error:
            note(f"a plan cannot be used: {error}")
    return found


def _statuses(text: str) -> tuple[bool, ...]:
    """Read statuses from a string or from the file of that name."""
    from onoff.audit.streams import parse_statuses

    return parse_statuses(text if set(text) <= set("01") else "".join(_lines(Path(text))))


def _truth(file: Path | None, chain: Chain) -> tuple[int, ...]:
    """Read the requests that were made, one name in a line, or as `onoff play` reads them: `on NAME`, `off NAME`."""
    truth = []
    for number, text in enumerate([] if file is None else _lines(file), 1):
        if not text:
            continue
        word, _, rest = text.partition(" ")
        name = rest.strip() if text not in chain.names and word in ("on", "off") else text
        if name not in chain.names:
            raise OnoffError(f"{file}: line {number}: no source is called {name!r}")
        truth.append(chain.index(name))
    return tuple(truth)


def _lines(file: Path) -> list[str]:
    return [line.strip() for line in read_text(file).split("\n")]


def _print(found: LogAudit) -> None:
    """Print all but the verdict, which has the first finding."""
    verdict = found.verdict
    further = [finding for finding in verdict.findings if finding is not verdict.first]
    if found.attack is not None:
        _print_attack(found.attack, found.naive)
    for finding in further[:SHOWN]:
        print(finding.words())
    if len(further) > SHOWN:
        print(f"and {len(further) - SHOWN} more findings")
    print(f"steps: {verdict.steps}; {verdict.drawn} of {verdict.off} OFF steps were drawn again from their numbers")
    if verdict.drawn:
        print(f"laws: within {verdict.rounding:.1e} of a perfectly private stream, all steps together")
    print("believed: " + "; ".join(verdict.believed))


def _name_sources(finding: Finding, chain: Chain) -> Finding:
    """Name the sources in a finding's set, as far as the chain knows them."""
    names = dict[object, str](enumerate(chain.names))
    return replace(finding, query=finding.query and tuple(names.get(x, x) for x in finding.query))


def _print_attack(ours: Attack, naive: Attack | None) -> None:
    from onoff.audit.attack import FALSE_ALARMS

    rows = []
    for name, made in (("this log", ours), ("a naive client", naive)):
        if made is not None:
            gains = [("made ON", made.private), ("sensitive", made.sensitive), ("open", made.open)]
            rows += [_row(name, what, gain) for what, gain in gains if gain is not None and gain.requests]
    headings = ["whose queries", "requests", "number", "bits, mean", "bits, most", "guessed before", "guessed after"]
    print_table("what a server learns about requests from all queries", headings, rows)
    if ours.missed:
        print(f"{ours.missed} of {ours.off} OFF steps could not be attacked: their chances are not known")
    words = "BETRAYS private requests" if ours.succeeded else "betrays nothing that is private"
    print(
        f"attack: {words}; beliefs moved by {ours.moved:.1e}, {ours.allowed:.1e} is allowed "
        f"(false alarms: {FALSE_ALARMS:g})"
    )


def _row(name: str, what: str, gain: Gain) -> Sequence[str]:
    shares = ["" if share is None else f"{100 * share:.1f} %" for share in (gain.guessed_before, gain.guessed)]
    return name, what, str(gain.requests), f"{gain.bits:.2g}", f"{gain.most:.2g}", *shares


def _as_dict(found: LogAudit, chain: Chain) -> dict[str, Any]:
    verdict = found.verdict
    first = verdict.first

    def shown(made: Attack | None) -> dict[str, Any] | None:
        if made is None:
            return None
        kept = {key: value for key, value in vars(made).items() if key != "beliefs"}
        return {**plain_data(kept), "succeeded": made.succeeded, "conclusive": made.conclusive}

    return {
        "word": found.word,
        "passed": found.passed,
        "first_wrong_step": None if first is None else first.step,
        "first": None if first is None else _name_sources(first, chain).words(),
        "not_checked": list(verdict.gaps),
        **plain_data(verdict),
        "attack": shown(found.attack),
        "naive": shown(found.naive),
    }

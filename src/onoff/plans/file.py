"""Plans as files: one JSON document with its own checksum, and everything needed to check it again.

The chain lies beside the plan, once for all plans of a directory, in a file that is named by its fingerprint and proved
by its name (`onoff.model.chainfile`). Every plan has the fields

    format       "onoff-plan"
    version      3
    scheme       the name of the scheme that made it (`onoff.schemes.SCHEMES`)
    lag          a whole number: the plan serves this lag and every larger one
    chain        the fingerprint of the chain: FINGERPRINT.chain in the same directory has it
    seal         of a table that its writer knows to serve every context: HMAC-SHA-256, in hexadecimal, of all other
                 fields but the checksum, with the secret key in the user's cache; else empty
    checksum     SHA-256, in hexadecimal, of all other fields as JSON with sorted keys and without spaces

and a plan with a table has besides

    sets         lists of sources (0 to n - 1, sorted); the last is the full set, none comes twice
    masses       one positive integer for each set: the query is sets[i] with probability masses[i] / denominator
    denominator  the sum of the masses, at most 2^52
    certificate  what proves that no scheme costs less (`onoff.schemes.certificate.Certificate`):
                 kind "outer", "cuts" or "sizes"; bound, the lower bound; cuts, lists of sources; weights, integers

while a race has

    cost         the estimated cost, a number
    interval     [low, high], its 95 % interval
    lower_bound  what no scheme can go below

The audit checks the plan object, and reads of its file the certificate alone.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from contextlib import suppress
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

from onoff.errors import OnoffError, PlanError
from onoff.files import cache_directory, path_of, read_regular, write_atomically
from onoff.model.chain import Chain
from onoff.model.chainfile import keep, load_kept
from onoff.model.posterior import Posterior
from onoff.plans.plan import Plan, check_lag
from onoff.plans.race import RacePlan
from onoff.plans.table import TablePlan
from onoff.schemes.certificate import Certificate, outer_certificate
from onoff.schemes.law import Law

FORMAT, VERSION = "onoff-plan", 3
LARGEST = 256 * 2**20  # bytes: more than a plan of a thousand sources has
MAX_ROUNDING = 2.0**-30  # total variation per step; plans that are made here state about 2^-45
KEY_BYTES = 32
FIELDS = {  # of each kind of plan, beside those of every plan
    TablePlan.kind: ("sets", "masses", "denominator", "certificate"),
    RacePlan.kind: ("cost", "interval", "lower_bound"),
}


def write(path: str | PathLike[str], plan: Plan) -> None:
    """Write the plan atomically, and its chain beside it if that is not there."""
    file = path_of(path, "the file of a plan", PlanError)
    keep(file.parent, plan.chain)
    data = {
        "format": FORMAT,
        "version": VERSION,
        "scheme": plan.scheme,
        "lag": plan.lag,
        "chain": plan.chain.fingerprint,
        **{name: _plain(getattr(plan, name)) for name in FIELDS[plan.kind]},
    }
    data["seal"] = seal(data) if isinstance(plan, TablePlan) and plan.verified else ""
    write_atomically(file, json.dumps({**data, "checksum": checksum(data)}).encode() + b"\n")


def read(path: str | PathLike[str], chain: Chain | None = None) -> Plan:
    """Read a plan; `PlanError` names the check that fails. If the plan is for `chain`, its chain is not read again.

    A plan with a seal of this user counts as verified. Of any other table the certificate is not believed either: only
    the outer bound counts, so that no forged bound keeps a better plan from being made.
    """
    file = path_of(path, "the file of a plan", PlanError)
    content = read_regular(file, LARGEST, PlanError)
    try:
        data = json.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise PlanError(f"{file}: not a plan file ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError(f'{file}: not a plan file: "format" must be "{FORMAT}"')
    if data.get("version") != VERSION:
        raise PlanError(f"{file}: version {data.get('version')!r} of the plan format is not read; make the plan anew")
    if data.pop("checksum", None) != checksum(data):
        raise PlanError(f"{file}: the checksum does not match: the file is damaged; make the plan anew")
    stated = data.pop("seal", None)
    sealed = bool(stated) and stated == seal(data)
    try:
        plan = _plan(data, _chain(data, file, chain), sealed)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, OnoffError) as error:
        raise PlanError(f"{file}: the plan fails its own checks: {error}") from None
    return plan


def checksum(data: dict[str, Any]) -> str:
    """Hash a document: SHA-256, in hexadecimal."""
    return hashlib.sha256(_canonical(data)).hexdigest()


def seal(data: dict[str, Any]) -> str:
    """Compute a document's HMAC with the key in the user's cache, made if missing; "" if that fails.

    Without a seal the plan is verified whenever it is opened.
    """
    with suppress(OSError, RuntimeError, OnoffError):
        file = cache_directory("plans.key")
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(file, secrets.token_bytes(KEY_BYTES), mode=0o600)
        key = read_regular(file, KEY_BYTES)
        if len(key) == KEY_BYTES:
            return hmac.new(key, _canonical(data), "sha256").hexdigest()
    return ""


def _canonical(data: dict[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    return asdict(value) if isinstance(value, Certificate) else value


def _chain(data: dict[str, Any], file: Path, known: Chain | None) -> Chain:
    """Find the plan's chain: the known one, or the one beside the plan."""
    fingerprint = data["chain"]
    if not (isinstance(fingerprint, str) and re.fullmatch("[0-9a-f]{64}", fingerprint)):  # it becomes a path
        raise PlanError("what names its chain is no fingerprint; make the plan anew")
    if known is not None and known.fingerprint == fingerprint:
        return known
    return load_kept(file.parent, fingerprint)


def _plan(data: dict[str, Any], chain: Chain, sealed: bool) -> Plan:
    plan: Plan
    check_lag(data["lag"])
    if data["scheme"] == RacePlan.scheme:
        low, high = data["interval"]
        plan = RacePlan(chain, data["lag"], data["cost"], (low, high), data["lower_bound"])
    else:
        law = Law.of_sets(tuple(map(tuple, data["sets"])), data["masses"], chain.n)
        if law.total != data["denominator"]:
            raise PlanError(f"the masses sum to {law.total}, not to the denominator {data['denominator']}")
        stated = Certificate.from_dict(data["certificate"]) if sealed else None
        proof = stated or outer_certificate(Posterior(chain, data["lag"]))
        plan = table = TablePlan(data["scheme"], chain, data["lag"], law, proof)
        if sealed:
            table.vouch()
    if not plan.rounding <= MAX_ROUNDING:
        raise PlanError(f"it states a rounding of {plan.rounding:.3g}, and at most {MAX_ROUNDING:.3g} is taken")
    return plan

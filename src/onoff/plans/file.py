"""Plans as files: one JSON document with its chain, its own checksum, and everything needed to check it again."""

from __future__ import annotations

import hashlib
import json
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onoff.errors import OnoffError, PlanError
from onoff.model.chain import Chain
from onoff.model.chainfile import write_atomically

if TYPE_CHECKING:
    from onoff.plans.base import Plan

FORMAT, VERSION = "onoff-plan", 1
MAX_ROUNDING = 2.0**-30  # total variation per step; plans that are made here state about 2^-45


def write(path: str | PathLike[str], plan: Plan, body: dict[str, Any]) -> None:
    """Write the plan atomically; `body` is what its scheme adds."""
    data = {
        "format": FORMAT,
        "version": VERSION,
        "scheme": plan.scheme,
        "lag": plan.lag,
        "lengths": plan.lengths,
        "names": plan.chain.names,
        "matrix": plan.chain.P.tolist(),
        **body,
    }
    write_atomically(Path(path), json.dumps({**data, "checksum": _checksum(data)}).encode() + b"\n")


def read(path: str | PathLike[str]) -> Plan:
    """Read a plan; `PlanError` names the check that fails."""
    return read_with_digest(path)[0]


def read_with_digest(path: str | PathLike[str]) -> tuple[Plan, str]:
    """Read a plan, and the digest of the very bytes that were read: SHA-256, in hexadecimal."""
    file = Path(path)
    try:
        content = file.read_bytes()
        data = json.loads(content.decode("utf-8"))
    except OSError as error:
        raise PlanError(f"{file}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise PlanError(f"{file}: not a plan file ({error})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise PlanError(f'{file}: not a plan file: "format" must be "{FORMAT}"')
    if data.get("version") != VERSION:
        raise PlanError(f"{file}: version {data.get('version')!r} of the plan format is not known here")
    if data.pop("checksum", None) != _checksum(data):
        raise PlanError(f"{file}: the checksum does not match: the file is damaged; make the plan anew")
    try:
        return _plan(data), digest_of(content)
    except (KeyError, TypeError, ValueError, OverflowError, IndexError, OnoffError) as error:
        raise PlanError(f"{file}: the plan fails its own checks: {error}") from None


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _checksum(data: dict[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _plan(data: dict[str, Any]) -> Plan:
    plan = _unchecked(data)
    if not plan.rounding <= MAX_ROUNDING:
        raise PlanError(f"it states a rounding of {plan.rounding:.3g}, and at most {MAX_ROUNDING:.3g} is taken")
    return plan


def _unchecked(data: dict[str, Any]) -> Plan:
    from onoff.model.posterior import Posterior
    from onoff.plans.base import checked_lengths
    from onoff.plans.race import RacePlan
    from onoff.plans.table import TablePlan
    from onoff.schemes.certificate import Certificate, check

    chain = Chain(data["matrix"], data["names"])
    lengths = checked_lengths(data["lengths"], chain.n)
    if data["scheme"] == RacePlan.scheme:
        low, high = data["interval"]
        return RacePlan(chain, data["lag"], data["cost"], (low, high), data["lower_bound"], lengths)
    proof = data["certificate"]
    certificate = Certificate(proof["kind"], proof["bound"], tuple(map(tuple, proof["cuts"])), tuple(proof["weights"]))
    sets = tuple(tuple(query) for query in data["sets"])
    plan = TablePlan(
        data["scheme"], chain, data["lag"], sets, tuple(data["masses"]), data["denominator"], certificate, lengths
    )
    check(certificate, Posterior(chain, plan.lag), lengths)
    return plan

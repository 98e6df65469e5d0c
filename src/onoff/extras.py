"""Extras: the libraries that `pip install onoff-privacy` leaves out, and the one line that says which to install."""

from __future__ import annotations

from importlib.util import find_spec

from onoff.errors import MissingExtra

# The modules that each extra of pyproject.toml brings, of those that we import ourselves.
MODULES = {
    "server": ("starlette", "uvicorn", "httptools", "prometheus_client"),
    "logs": ("duckdb",),
    "plots": ("matplotlib",),
    "redis": ("redis",),
    "dask": ("distributed",),
    "spark": ("duckdb", "pyspark"),
    "fast": ("numba",),
    "testing": ("hypothesis",),
}


def has(extra: str) -> bool:
    """Whether all modules of the extra are installed. Imports nothing."""
    return not _find_missing(extra)


def need(extra: str, what: str) -> None:
    """Raise `MissingExtra` unless all modules of the extra are installed. `what` is what needs them. Imports nothing.

    Call it before the work: nobody should wait an hour for a table and learn then that it cannot be written.
    """
    if missing := _find_missing(extra):
        raise MissingExtra(
            f"{what} needs {', '.join(missing)}: pip install 'onoff-privacy[{extra}]'", extra=extra, name=missing[0]
        )


def _find_missing(extra: str) -> list[str]:
    return [name for name in MODULES[extra] if find_spec(name) is None]

"""Lengths of messages, by which plans weigh their sets: a file {name: number}, or the same in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onoff.errors import PlanError
from onoff.files import read_json


def read_lengths(file: Path, names: tuple[str, ...]) -> tuple[float, ...]:
    """The lengths in a JSON file, in the order of the names."""
    return lengths_of(read_json(file, PlanError), names, f"{file}: ")


def lengths_of(data: Mapping[str, Any], names: tuple[str, ...], where: str = "the lengths: ") -> tuple[float, ...]:
    """The lengths {name: number}, in the order of the names."""
    if not isinstance(data, Mapping) or set(data) != set(names):
        raise PlanError(f"{where}an object with exactly the names of the chain is needed")
    if any(isinstance(data[name], bool) or not isinstance(data[name], int | float) for name in names):
        raise PlanError(f"{where}every length must be a number")
    return tuple(float(data[name]) for name in names)

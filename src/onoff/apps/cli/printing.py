"""How results are printed for programs: one JSON document on stdout, and nothing else there."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any


def print_json(result: object) -> None:
    """Print a result: a frozen dataclass, or a list or dictionary of such."""
    print(json.dumps(plain_data(result), indent=2, allow_nan=False))


def plain_data(value: Any) -> Any:
    """A result as JSON has it: types as objects with their fields, and null for a number that is not finite."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain_data(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain_data(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain_data(part) for part in value]
    return _plain_value(value)


def _plain_value(value: Any) -> Any:
    """A single value as JSON has it."""
    if hasattr(value, "item"):  # NumPy's numbers and arrays
        return plain_data(value.tolist())
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return str(value) if isinstance(value, PurePath) else value

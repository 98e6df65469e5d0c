"""The habits: P[z, x] is the probability that source x is asked for in state z, and a request decides the next state.

Of a Markov chain the state is the last request. Habits with memory have states that reach further back
(`onoff.model.tree`). They are chains, too: of their states.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from os import PathLike
from reprlib import repr as short
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onoff.errors import ChainError, NotUnique
from onoff.model import powers as products
from onoff.model import tree
from onoff.types import Floats, is_whole

if TYPE_CHECKING:
    from onoff.model.posterior import Posterior

ROW_SUM_TOLERANCE = 1e-9


class Chain:
    """Frozen habits over n >= 2 named sources, validated once and then trusted.

    State x < n is the last request alone. `states[z]` are the last requests of state z, oldest first; without `states`
    every state is one request, and the habits are a Markov chain. `P` is a read-only float64 matrix with a row for each
    state. A row whose sum is within 1e-9 of 1 is renormalised; one that is within n * 2^-52 of 1 already is left
    untouched, so that saving and loading is exact to the bit. Names default to "0", "1", ...: then the name of a source
    is its index. `weight[z]` is the number of transitions that row z rests on; None if the habits are stated as exact.
    It is no part of the fingerprint.
    """

    P: Floats
    names: tuple[str, ...]
    weight: Floats | None
    states: tuple[tree.State, ...]

    def __init__(
        self,
        P: ArrayLike,
        names: Iterable[str] | None = None,
        weight: ArrayLike | None = None,
        states: Iterable[Sequence[int]] | None = None,
    ) -> None:
        matrix = _check_matrix(P, what="the transition matrix", square=states is None)
        labels = _check_names(names, matrix.shape[1])
        found = tree.check_states(states or [(x,) for x in range(len(matrix))], labels)
        if len(found) != len(matrix):
            raise ChainError(f"there are {len(matrix)} rows for {len(found)} contexts", value=len(matrix))
        for row, state in enumerate(found):
            matrix[row] = _normalise(matrix[row], row, tree.describe_state(state, labels))
        order = tree.in_order(found)
        self.__dict__["P"] = np.frombuffer(matrix[order].tobytes()).reshape(matrix.shape)  # bytes cannot be written
        self.__dict__["names"] = labels
        self.__dict__["weight"] = None if weight is None else _check_weight(weight, len(found))[order]
        self.__dict__["states"] = tuple(found[row] for row in order)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Chain is frozen: {name} cannot be set; build a new Chain instead")

    @classmethod
    def symmetric(cls, n: int, alpha: float, names: Iterable[str] | None = None) -> Self:
        """Definition 1 of the paper: alpha on the diagonal, (1 - alpha) / (n - 1) elsewhere."""
        if not is_whole(n, 2):
            raise ChainError(f"n is {n!r}: a chain needs a whole number of sources, at least 2", value=n)
        if not (isinstance(alpha, Real) and 0 <= alpha <= 1):
            raise ChainError(f"alpha is {alpha!r}: a probability from 0 to 1 is needed", value=alpha)
        P = np.full((n, n), (1 - alpha) / (n - 1))
        np.fill_diagonal(P, alpha)
        return cls(P, names)

    @classmethod
    def from_counts(cls, counts: ArrayLike, names: Iterable[str] | None = None, smoothing: float = 1.0) -> Self:
        """Make P[i, j] proportional to counts[i, j] + smoothing.

        Raises `ChainError` for a source without any outgoing count, whatever the smoothing: its row would be invented.
        """
        matrix = _check_matrix(counts, what="the count matrix")
        labels = _check_names(names, len(matrix))
        if not (isinstance(smoothing, Real) and 0 <= smoothing <= sys.float_info.max):
            raise ChainError(f"smoothing is {smoothing!r}: a finite number of at least 0 is needed", value=smoothing)
        empty = np.flatnonzero(~matrix.any(axis=1))
        if len(empty):
            row = int(empty[0])
            raise ChainError(
                f"row {row} ({labels[row]!r}) has no outgoing counts, so nothing is known of what follows this "
                "source: drop it, merge it with another, or enter the counts you believe in",
                row=row,
                value=0.0,
            )
        smoothed = matrix + float(smoothing)
        return cls(smoothed / smoothed.sum(axis=1, keepdims=True), labels)

    @property
    def n(self) -> int:
        """Number of sources."""
        return len(self.names)

    def index(self, name: str) -> int:
        """Find a source's index by name."""
        try:
            return self._index[name]
        except (KeyError, TypeError):
            near = get_close_matches(name, self.names, 1) if isinstance(name, str) else []
            known = f"{', '.join(self.names[:12])}{', ...' * (self.n > 12)}"
            hint = f"did you mean {near[0]!r}? The" if near else "the"
            raise ChainError(f"no source is called {name!r}: {hint} sources are {known}", value=name) from None

    @cached_property
    def _index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}

    @property
    def depth(self) -> int:
        """Number of requests in the longest state: 1 for a Markov chain."""
        return len(self.states[-1])

    @cached_property
    def last(self) -> NDArray[np.intp]:
        """The request that led to each state."""
        return np.array([state[-1] for state in self.states])

    @cached_property
    def step(self) -> NDArray[np.intp]:
        """[z, x]: the state after the request x in state z."""
        return tree.steps(self.states, self.n)

    @cached_property
    def moves(self) -> Floats:
        """[z, y]: the probability that state y follows z. `P` itself for a Markov chain."""
        if self.depth == 1:
            return self.P
        moves = np.zeros((len(self.P), len(self.P)))
        np.put_along_axis(moves, self.step, self.P, axis=1)
        return moves

    def state_of(self, history: Sequence[int]) -> int:
        """Find the state after a history, oldest first."""
        return tree.longest_suffix({state: z for z, state in enumerate(self.states)}, tuple(history))

    def known_state(self, run: Sequence[int]) -> int | None:
        """Find the state after these requests, whatever came before; None if they leave it open."""
        found = np.arange(len(self.P))
        for x in run:
            found = np.unique(self.step[found, x])
        return int(found[0]) if len(found) == 1 else None

    def without_memory(self, what: str = "the promise `both`") -> Self:
        """Return self. Raises `ChainError` if self has memory, which `what` cannot take."""
        if self.depth > 1:
            words = f"these habits remember {self.depth} requests, and {what} needs a Markov chain"
            raise ChainError(f"{words}: fit one with `onoff fit --memory 1`", value=self.depth)
        return self

    def power(self, k: int) -> Floats:
        """Compute P^k, with a small relative error (`onoff.model.powers.power`) in entries without underflow."""
        if not is_whole(k):
            raise ChainError(f"the exponent is {k!r}: a whole number of at least 0 is needed", value=k)
        return products.power(self.without_memory().P, k)

    def posterior(self, lag: int) -> Posterior:
        """Prepare p(request | last, next) at this lag."""
        from onoff.model.posterior import Posterior

        return Posterior(self.without_memory(), lag)

    def stationary(self) -> Floats:
        """Compute the law of states with pi `moves` = pi. Raises `NotUnique` if there are several closed classes.

        No digit is lost, even if the chain is nearly deterministic. Raises `ChainError` where floats overflow.
        """
        members = self._closed_class()
        result = np.zeros(len(self.P))
        with np.errstate(all="ignore"):
            result[members] = products.stationary(self.moves[np.ix_(members, members)])
        if not np.isfinite(result).all():
            raise ChainError("the stationary distribution overflows: transitions are too unlikely; smooth the chain")
        return result

    def _closed_class(self) -> NDArray[np.intp]:
        """Find the sources of the one closed class."""
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import connected_components

        count, label = connected_components(csr_array(self.moves > 0), connection="strong")
        starts, ends = np.nonzero(self.moves > 0)
        leaving = np.zeros(count, dtype=bool)
        leaving[label[starts[label[starts] != label[ends]]]] = True
        closed = np.flatnonzero(~leaving)
        if len(closed) > 1:
            classes = tuple(int(self.last[np.flatnonzero(label == c)[0]]) for c in closed)
            raise NotUnique(
                f"the stationary distribution is not unique: {self.names[classes[0]]!r} and "
                f"{self.names[classes[1]]!r} never reach each other; smooth the chain, or say where to start",
                classes=classes,
            )
        return np.flatnonzero(label == closed[0])

    def simulate(self, steps: int, rng: np.random.Generator, start: int | None = None) -> NDArray[np.intp]:
        """Draw `steps` requests; the first is `start`, or drawn from the stationary distribution.

        Each step takes one draw of 53 bits, so requests less likely than 2^-53 may never be seen.
        """
        if not is_whole(steps):
            raise ChainError(f"steps is {steps!r}: a whole number of at least 0 is needed", value=steps)
        if start is not None and not (is_whole(start) and start < self.n):
            raise ChainError(f"start is {start!r}: the sources are 0 to {self.n - 1}", value=start)
        path = np.empty(steps, dtype=np.intp)
        if not steps:
            return path
        if start is None:
            start = int(np.searchsorted(_cumulate(self.stationary()), rng.random(), side="right"))
        state, path[0] = start, self.last[start]
        cumulated = _cumulate(self.P)
        uniform = rng.random(steps)
        for t in range(1, steps):
            path[t] = np.searchsorted(cumulated[state], uniform[t], side="right")
            state = self.step[state, path[t]]
        return path

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 hash of matrix and names, the same on every machine."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def content(self) -> bytes:
        """Bytes behind the fingerprint: names as JSON, a zero byte, and the matrix as 64-bit floats, row by row.

        After the names come the states longer than one request, if any.
        """
        return self._head + self.P.astype("<f8").tobytes()

    @property
    def _head(self) -> bytes:
        """All but the matrix."""
        longer = [self.states[self.n :]] if self.depth > 1 else []
        head = json.dumps(["onoff-chain", 1, list(self.names), *longer], ensure_ascii=True, separators=(",", ":"))
        return head.encode() + b"\0"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a chain from a `.json`, `.csv` or `.chain` file."""
        from onoff.model.chainfile import read

        data = read(path)
        try:
            return cls.from_dict(data)
        except ChainError as error:
            raise ChainError(f"{path}: {error}", row=error.row, value=error.value) from None

    def save(self, path: str | PathLike[str]) -> None:
        """Write the chain to a `.json`, `.csv` or `.chain` file, atomically; `load` gives it back bit for bit."""
        from onoff.model.chainfile import write

        write(path, self)

    def as_dict(self) -> dict[str, Any]:
        """Names and matrix as values of JSON, as every file holds them. `from_dict` gives it back bit for bit."""
        known = {} if self.weight is None else {"weight": self.weight.tolist()}
        if self.depth == 1:
            return {"names": list(self.names), "matrix": self.P.tolist(), **known}
        rows = zip(self.states, self.P.tolist(), strict=True)
        contexts = [{"after": [self.names[x] for x in state], "row": row} for state, row in rows]
        return {"names": list(self.names), "contexts": contexts, **known}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Make the chain from such values."""
        if not (isinstance(data, Mapping) and "names" in data and ("matrix" in data or "contexts" in data)):
            raise ChainError(f"{short(data)} describes no chain: a mapping with `names` and `matrix` is needed")
        if "contexts" in data:
            states, rows = tree.parse_contexts(data["contexts"], data["names"])
            return cls(rows, data["names"], data.get("weight"), states)
        return cls(data["matrix"], data["names"], data.get("weight"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chain) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __reduce__(self) -> tuple[Any, ...]:
        return Chain, (self.P, self.names, self.weight, self.states)

    def __repr__(self) -> str:
        memory = f" and {len(self.states)} states" if self.depth > 1 else ""
        return f"<Chain of {self.n} sources{memory}, {self.fingerprint[:12]}>"


class UnknownChain(Chain):
    """The names of n sources of whose habits nothing is known: uniform, without room for a matrix.

    A server says how many sources there are, and the square of that could fill the memory. The fingerprint is of the
    names alone.
    """

    def __init__(self, names: Sequence[str]) -> None:
        n = len(names)
        if n < 2:
            raise ChainError("at least 2 sources are needed", value=n)
        self.__dict__["P"] = np.broadcast_to(1 / n, (n, n))
        self.__dict__["names"] = _check_names(names, n)
        self.__dict__["weight"] = None
        self.__dict__["states"] = tuple((x,) for x in range(n))

    @property
    def content(self) -> bytes:
        """Bytes behind the fingerprint: names as JSON, and a zero byte."""
        return self._head

    def __reduce__(self) -> tuple[Any, ...]:
        return UnknownChain, (self.names,)


def check_chain(given: object) -> Chain:
    """Return a given chain. Raises `ChainError` if it is something else."""
    if not isinstance(given, Chain):
        raise ChainError(f"the chain is {short(given)}: a Chain is needed (Chain.load reads a file)", value=given)
    return given


def _check_matrix(values: ArrayLike, what: str, square: bool = True) -> Floats:
    """Copy to a float64 matrix of at least 2 rows of finite numbers >= 0; make negative zeros 0."""
    try:
        matrix = np.asarray(values)
        kind = matrix.dtype.kind
        if kind not in "biufO" or (kind == "O" and any(isinstance(v, str | bytes | complex) for v in matrix.flat)):
            raise TypeError("real numbers are needed")
        matrix = matrix.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ChainError(f"{what} is not a rectangle of numbers: {error}") from None
    if matrix.ndim != 2 or (square and matrix.shape[0] != matrix.shape[1]):
        raise ChainError(f"{what} has the shape {matrix.shape}: a square one is needed", value=matrix.shape)
    if len(matrix) < 2:
        raise ChainError(f"{what} has {len(matrix)} source: at least 2 are needed", value=len(matrix))
    wrong = np.argwhere(~(np.isfinite(matrix) & (matrix >= 0)))
    if len(wrong):
        row, column = map(int, wrong[0])
        value = float(matrix[row, column])
        raise ChainError(
            f"row {row} of {what} has {value!r} in column {column}: finite numbers of at least 0 are needed",
            row=row,
            value=value,
        )
    return matrix + 0.0


def _check_names(names: Iterable[str] | None, n: int) -> tuple[str, ...]:
    """Check the names of n sources, all different; default: indices."""
    if names is None:
        return tuple(map(str, range(n)))
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ChainError(f"names is {names!r}: give a list of {n} names", value=names)
    labels = tuple(names)
    if len(labels) != n:
        raise ChainError(f"{len(labels)} names were given for {n} sources", value=len(labels))
    seen: dict[str, int] = {}
    for row, name in enumerate(labels):
        if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
            raise ChainError(
                f"the name of source {row} is {short(name)}: a printable string without spaces at its ends is needed",
                row=row,
                value=name,
            )
        if name in seen:
            raise ChainError(f"sources {seen[name]} and {row} are both called {name!r}: names are unique",
                             row=row, value=name)  # fmt: skip
        seen[name] = row
    return tuple(map(str.__str__, labels))


def _check_weight(weight: ArrayLike, n: int) -> Floats:
    """Check the n weights of the rows."""
    try:
        found = np.array(weight, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.empty(0)
    if found.shape != (n,) or not (np.isfinite(found) & (found > 0)).all():
        raise ChainError(f"weight is {short(weight)}: {n} numbers above 0 are needed, or none", value=weight)
    found.setflags(write=False)
    return found


def _normalise(row: Floats, index: int, name: str) -> Floats:
    """Divide a row of probabilities by its sum if that is off by more than rounding."""
    total = math.fsum(row)
    if abs(total - 1) > ROW_SUM_TOLERANCE:
        raise ChainError(
            f"row {index} ({name}) sums to {total!r}, not to 1: if its digits were rounded, `onoff fit` "
            "divides each row by its sum; if these are counts, use Chain.from_counts",
            row=index,
            value=total,
        )
    return row if abs(total - 1) <= len(row) * 2.0**-52 else row / total


def _cumulate(weights: Floats) -> Floats:
    """Compute cumulative sums that end at exactly 1: no draw below 1 falls off the end."""
    sums = weights.cumsum(axis=-1)
    scaled: Floats = sums / sums[..., -1:]
    return scaled

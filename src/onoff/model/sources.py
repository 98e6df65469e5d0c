"""A chain for another list of sources: it keeps what it knows of the sources that stay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onoff.model.chain import Chain
from onoff.model.misfit import FEW

SEEN = 1.0  # how often a new source counts as seen after each state
UNKNOWN = 5.0  # transitions: as many count the shares of all requests as the row of a state of which nothing is known


def with_sources(chain: Chain, names: Sequence[str]) -> Chain:
    """The chain for the sources called `names`, in this order; a function of the chain and the names alone.

    Between sources that stay, P(y | z) keeps its ratios. States with a source that goes are gone with it. Each row
    counts as many transitions as its weight says, those to sources that stay, and one to each new source. The row
    after a new source is the shares of all requests. A chain that is stated as exact stays so if it only loses sources.
    With a new source it is an estimate: each row of the stated one then counts as 10 transitions for each source.
    """
    if tuple(names) == chain.names:
        return chain
    stays = [x for x in range(chain.n) if chain.names[x] in names]
    old = [z for z, state in enumerate(chain.states) if set(state) <= set(stays)]
    place = {x: names.index(chain.names[x]) for x in stays}
    new = [x for x in range(len(names)) if x not in place.values()]
    weight = np.full(len(chain.P), float(FEW * chain.n)) if chain.weight is None else chain.weight
    counts = np.zeros((len(old) + len(new), len(names)))
    counts[: len(old), list(place.values())] = (weight[:, None] * chain.P)[np.ix_(old, stays)]
    counts[: len(old), new] = SEEN
    single = counts[: len(stays)].sum(axis=0)  # the rows after the last request alone stand first
    shares = (single + 0.5) / (single.sum() + len(names) / 2)
    invented = counts.sum(axis=1) == 0  # also where all went that could follow
    counts[invented] = UNKNOWN * shares
    total = counts.sum(axis=1)
    states = [tuple(place[x] for x in chain.states[z]) for z in old] + [(x,) for x in new]
    exact = chain.weight is None and not invented.any()
    return Chain(counts / total[:, None], names, None if exact else np.maximum(total, SEEN), states)

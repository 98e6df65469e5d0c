"""The reader of the demonstration: eight news channels, and strong habits that are soon forgotten.

Each channel is followed by one of its two favourites in six of seven cases. To know what was read before and after a
request is nearly to know the request: of the two favourites of the one, one alone has the other among its favourites.
After three requests nearly nothing is left of a habit, so that privacy is cheap.
"""

from __future__ import annotations

import numpy as np

from onoff.model.chain import Chain

CHANNELS = ("world", "politics", "business", "technology", "science", "health", "sports", "culture")
HABITS = (  # how often each channel (row) was followed by each other (column) in the reader's past
    (18, 0, 16, 0, 0, 0, 0, 0),  # world: world, business
    (0, 0, 0, 18, 0, 0, 0, 16),  # politics: technology, culture
    (0, 18, 0, 0, 0, 16, 0, 0),  # business: politics, health
    (0, 16, 0, 0, 0, 18, 0, 0),  # technology: health, politics
    (0, 0, 0, 0, 16, 0, 18, 0),  # science: sports, science
    (0, 0, 0, 0, 18, 0, 16, 0),  # health: science, sports
    (0, 0, 0, 16, 0, 0, 0, 18),  # sports: culture, technology
    (16, 0, 18, 0, 0, 0, 0, 0),  # culture: business, world
)
SENSITIVE = ("politics", "health")
SWITCHING = 0.12  # how often privacy is switched ON, independently of what is read
RETURNING = 0.8  # how often it is switched OFF again after a request
LENGTH = 256  # bytes of the longest message
DELAY = 0.02  # seconds from call to send: on one machine with eight sources, draws take a millisecond


def reader() -> Chain:
    """Make the eight channels' chain."""
    return Chain.from_counts(HABITS, CHANNELS)


def statuses(steps: int, rng: np.random.Generator) -> list[bool]:
    """Draw ON and OFF periods, whatever the requests. The first is ON."""
    found, private = [], True
    for number in rng.random(steps):
        found.append(private)
        private = bool(number >= RETURNING) if private else bool(number < SWITCHING)
    return found


def requests(steps: int, seed: int) -> list[tuple[str, bool]]:
    """Simulate the reader's requests with their statuses. The seed repeats them; queries stay secret."""
    rng = np.random.default_rng(seed)
    chain = reader()
    path = chain.simulate(steps, rng)
    return [(chain.names[x], private) for x, private in zip(path, statuses(steps, rng), strict=True)]


def news(channel: str, issue: int = 0) -> bytes:
    """Make a channel's latest message."""
    return f"the latest of {channel}{f', number {issue}' if issue else ''}".encode()

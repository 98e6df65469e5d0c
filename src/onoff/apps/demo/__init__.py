"""The demonstration: one reader of eight news channels, a real server that keeps everything, and nine clients.

All of it runs on this machine. The server is `onoff serve` on a free loopback port. Three clients are ours, one for
each promise (`running`). Six others do what people do today (`rivals`). All make the same requests of the same server,
whose log is then attacked for each of them alike (`comparing`). One more client is killed with SIGKILL (`killing`).
"""

from onoff.apps.demo.habits import (
    CHANNELS,
    DELAY,
    HABITS,
    LENGTH,
    SENSITIVE,
    SWITCHING,
    news,
    reader,
    requests,
    statuses,
)
from onoff.apps.demo.running import Demonstration, demonstrate

__all__ = [
    "CHANNELS",
    "DELAY",
    "HABITS",
    "LENGTH",
    "SENSITIVE",
    "SWITCHING",
    "Demonstration",
    "demonstrate",
    "news",
    "reader",
    "requests",
    "statuses",
]

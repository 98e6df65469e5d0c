"""The demonstration: one reader of eight news channels, a real server that keeps everything, and nine clients.

All of it runs on this machine. Three clients are ours, one for each promise, and six do what people do today
(`compare`). All make the same requests of the same server (`run`), whose log is then attacked for each of them alike.
"""

from onoff.extras import need

need("server", "the demonstration")

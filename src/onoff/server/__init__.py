"""The server: latest messages of n sources, answered in sets.

It imports nothing of the scheme, so it cannot depend on what it must not know.
"""

from onoff.extras import need

need("server", "the server")  # here, once for all its modules

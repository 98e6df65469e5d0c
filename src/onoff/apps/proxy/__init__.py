"""`onoff proxy`: a private door for any program of this machine. `GET /NAME` is one step of one stream.

`line` makes the steps, one after the other, and knows nothing of HTTP. `door` says who may ask, `naming` for what,
`replies` how it is answered. `app` puts them together.
"""

from onoff.extras import need

need("server", "the proxy")

"""`onoff proxy`: private requests for any program of this machine. `GET /NAME` is one step of one stream.

`onoff.client.queue` makes the steps, one after the other. `guard` says who may ask, `responses` how a request is
answered, `status_page` what the proxy says of itself. `app` puts them together.
"""

from onoff.extras import need

need("server", "the proxy")

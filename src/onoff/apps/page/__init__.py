"""`onoff page`: a page in the browser over a real server and a real client.

`app` serves the page and takes clicks, `state` is what the page shows, `session` runs a server and a client for each
promise, `steps` reads what they did, and `beliefs` is what the server concludes.
"""

from onoff.extras import need

need("server", "the page")

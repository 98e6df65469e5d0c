"""`onoff page`: a page in the browser over a real server and a real client.

`world` knows nothing of pages, and `app` nothing of privacy.
"""

from onoff.extras import need

need("server", "the page")

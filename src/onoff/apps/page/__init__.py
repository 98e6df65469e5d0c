"""`onoff page`: a page in the browser over a real server and a real client.

A world (`everyday`, `announced`) knows nothing of pages, and `app` nothing of privacy.
"""

from onoff.extras import need

need("server", "the page")

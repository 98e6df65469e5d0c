"""`onoff page`: a page in the browser over a real server and a real client. `world` has no page, `app` no privacy."""

from onoff.extras import need

need("server", "the page")

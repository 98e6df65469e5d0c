"""The client: the protocol without I/O, its memory on disk, and ways to reach a server."""

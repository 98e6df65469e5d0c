"""From logs of requests to chains: reading, counting, fitting, and how sure one may be of the result."""

"""The test double, tested: what it adds to the server, and that it is the server."""

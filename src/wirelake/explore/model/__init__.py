"""Questions about a lake: each a function of a connection and arguments, which returns rows."""

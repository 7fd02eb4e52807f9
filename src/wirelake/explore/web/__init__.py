"""The web application: pages about a lake, rendered by the server, with a few small elements."""

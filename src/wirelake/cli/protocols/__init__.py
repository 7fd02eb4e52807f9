"""Live commands, one file per protocol: `serve`, `listen`, `call` and `send`."""

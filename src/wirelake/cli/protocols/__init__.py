"""Live commands of each protocol: one file per protocol, with `serve`, `listen`, `call` and `send` as it has them."""

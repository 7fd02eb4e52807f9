"""The rule book: every ruling, and every cited section of the specifications, in plain words.

`PROTOCOL.toml` has the words: one file per protocol, written by hand. `book` reads them. `facts` adds what the code knows of the faults
that cite an entry: severity, the answer of a live peer, and how the lake reports it. `lookup` finds entries by what people type. The
pages of `docs/rules/` and `wirelake explain` are made from these.
"""

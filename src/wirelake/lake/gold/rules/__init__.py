"""Rules over history: those that depend on data or time, not only on the state machine.

There is one file per protocol. Relink has two more, for rules about connections and about channels.
"""

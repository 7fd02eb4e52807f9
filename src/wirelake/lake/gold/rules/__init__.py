"""Rules that no table of states can hold: a file per protocol, and for Relink one each for what a connection and a channel know."""

"""Rules that no table of states can hold, one file per protocol."""

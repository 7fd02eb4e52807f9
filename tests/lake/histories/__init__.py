"""Random histories that break rules, by protocol."""

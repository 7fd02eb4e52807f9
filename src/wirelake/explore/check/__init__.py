"""Check: is the traffic of a lake as it should be? Results as test cases, for people and for CI."""

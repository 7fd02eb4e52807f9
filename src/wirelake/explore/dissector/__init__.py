"""Lua dissectors for Wireshark, generated from the scanners and from `explore/bytes`."""

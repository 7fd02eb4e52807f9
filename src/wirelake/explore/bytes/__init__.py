"""Bytes of messages: read them from the source file, and name the field of every byte."""

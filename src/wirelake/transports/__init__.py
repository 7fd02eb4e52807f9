"""Transports: one interface for streams, one for datagrams, and their implementations."""

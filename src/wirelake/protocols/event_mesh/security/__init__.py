"""Signatures, HMACs, encryption, trust and replay protection of Event Mesh."""

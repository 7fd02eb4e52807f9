"""Dissect packets: link layers, IP fragments, TCP reassembly, UDP flows."""

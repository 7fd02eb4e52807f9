"""Blocks: the few large rows that carry bytes and their origin from captures to the decoder."""

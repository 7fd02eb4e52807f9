"""Export: write the messages of a lake that a filter lets through, in formats that other programs read."""

"""Diff: what differs between two lakes, two selections of messages, two sessions, or two messages."""

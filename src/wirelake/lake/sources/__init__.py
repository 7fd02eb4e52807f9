"""Captures to blocks: input paths, planning, and the Python Data Sources."""

"""Incremental refresh of gold tables: only rows of sessions that a new batch affects are rebuilt."""

"""Incremental refresh of gold tables: rebuilds only rows of sessions that a batch affects."""

"""Blocks to rows, without Spark."""

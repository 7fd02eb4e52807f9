"""Rows to commits, without Spark: Parquet, Delta, journal, compaction, migration."""

"""Rows to commits, without Spark: Parquet, Delta transactions, the journal, compaction, migration."""

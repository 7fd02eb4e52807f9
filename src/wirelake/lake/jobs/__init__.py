"""Jobs people start: ingest, follow, forget."""

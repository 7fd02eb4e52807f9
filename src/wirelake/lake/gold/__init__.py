"""Tables built from tables: exchanges, violations, sessions, security, metrics, topology."""

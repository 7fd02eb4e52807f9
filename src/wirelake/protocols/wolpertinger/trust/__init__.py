"""Trust levels of wolpertinger: key agreement, authentication, session keys."""

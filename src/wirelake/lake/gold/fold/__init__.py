"""Gold rows of sessions, by folding their messages once, in order, through the protocols' analyzers. No Spark here."""

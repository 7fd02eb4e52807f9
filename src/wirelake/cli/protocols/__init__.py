"""What each protocol can do live from the command line: one file per room, with the commands it has."""

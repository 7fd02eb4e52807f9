"""One command per file; nobody imports these but the command line itself."""

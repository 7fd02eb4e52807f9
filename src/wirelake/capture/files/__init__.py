"""Open capture files, identify them, split them, and follow them while they grow."""

"""Layer 2 of wolpertinger: documents with calls, responses and errors."""

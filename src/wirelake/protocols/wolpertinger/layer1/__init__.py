"""Layer 1 of wolpertinger: lines, fragments, delivery confirmation."""

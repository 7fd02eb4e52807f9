"""Model Context Protocol: questions about a lake, for agents."""

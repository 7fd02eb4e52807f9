"""Wolpertinger over history."""

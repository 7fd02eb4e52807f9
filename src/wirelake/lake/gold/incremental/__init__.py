"""How gold tables are kept: what a new batch touches, and only that, is built anew. Every file knows one step of it."""

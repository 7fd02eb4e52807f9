"""Write what live peers send and receive as pcapng."""

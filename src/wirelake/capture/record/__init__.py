"""Record what live peers send and receive, as pcapng with exported PDUs."""

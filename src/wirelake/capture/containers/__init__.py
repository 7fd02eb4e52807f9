"""Find the records of pcap and pcapng files."""

"""Bytes at rest: pcap and pcapng in, pcapng out.

`recording` and `exported` serve live peers and need no array library; `reader` and `blocks` serve the lake.

It refuses to know what the payload means, and imports nothing by itself.
"""

__all__: list[str] = []

"""Capture files: record live traffic as pcapng, read pcap and pcapng into blocks.

The folders are the stages of the pipeline:

- `record/` writes what live peers send and receive. It needs no array library.
- `files/` opens sources, identifies them, splits them, and follows them while they grow.
- `containers/` finds the records of pcap and pcapng files.
- `packets/` dissects packets, joins IP fragments, and puts TCP segments in order.
- `blocks/` puts payload of all connections into blocks, which `lake.decode` decodes.
"""

__all__: list[str] = []

"""Turn captures into blocks: bytes of many connections with their source offsets."""

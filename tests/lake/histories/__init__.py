"""Random conversations that break rules, one module for each protocol: `write(folder, seed)` records them."""

"""How bytes move: one tiny stream interface, and what stands behind it. It refuses to know protocols."""

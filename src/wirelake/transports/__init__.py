"""How bytes move: two tiny interfaces, for streams and for datagrams, and what stands behind them. It refuses to know protocols."""

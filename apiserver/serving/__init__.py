"""How bytes arrive and leave: connections, TLS, limits, compression, the shutdown sequence. Knows no kind."""

"""Members that are called over the network: wire formats, sockets, retries, time limits and rests."""

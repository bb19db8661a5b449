"""A peer in its own organisation: a long-running process that federates with others over mutual TLS."""

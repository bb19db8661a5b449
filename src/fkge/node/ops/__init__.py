"""Operating a node: audit log, control socket, metrics, log, preflight checks."""

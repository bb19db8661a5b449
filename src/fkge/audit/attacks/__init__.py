"""Attacks on what owners send, one module each; see `fkge.audit`."""

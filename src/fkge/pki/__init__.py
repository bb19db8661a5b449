"""Identities of a consortium: its authority, certificates, kits for members, trust, and what a site does with them."""

from fkge.errors import need

need("cryptography", "node", "working with keys and certificates")

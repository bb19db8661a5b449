"""Both roles in one process."""

from __future__ import annotations

from fkge.ppat.client import PpatClient
from fkge.ppat.host import PpatHost, Translation
from fkge.ppat.messages import FromClient


def run_game(client: PpatClient, host: PpatHost) -> Translation:
    """Carry messages between the two until the client has no more to say; return what the host has got."""
    message: FromClient | None = client.start()
    while message is not None:
        message = client.step(host.step(message))
    return host.translation

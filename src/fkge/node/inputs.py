"""Optional inputs of a node for recordings, rehearsals and tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fkge.federation import OwnerStore
from fkge.federation.owner.job import Job
from fkge.federation.participant import Emit
from fkge.node.driver import DeliveryOrder


@dataclass(frozen=True)
class Prepared:
    """Store, job and alignments that a rehearsal has prepared for a node.

    Attributes:
        store: the owner's, with its alignments and tokens.
        alignments: by peer, the id (32 hexadecimal digits) under which both sides know their alignment.
    """

    store: OwnerStore
    job: Job
    alignments: Mapping[str, str]


@dataclass(frozen=True)
class Inputs:
    """What a node can be given in addition to its configuration, for recordings, rehearsals and tests.

    Attributes:
        recording: a file to record everything that it receives and sends.
        order: the order in which messages are delivered to the owner; as they arrive, if None.
        prepared: what it need not find out.
        observe: called with everything that the owner's work notes, from the loop or from its thread.
    """

    recording: Path | None = None
    order: DeliveryOrder | None = None
    prepared: Prepared | None = None
    observe: Emit | None = None

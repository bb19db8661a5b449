"""Greetings of two nodes: identity, protocol version and federation settings, compared before a session starts.

The side that dialled has shown its certificate in the TLS handshake. The other side has, too; but gRPC does not tell
which one it was, and a revoked one would do. So it signs the dialler's nonce, and sends its certificate along: who
holds a revoked key cannot sign for the new one.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from typing import Any

from fkge.embed import make_model
from fkge.errors import IdentityError
from fkge.federation import FederationSettings
from fkge.federation.owner.store import widths
from fkge.node import frames_pb2 as pb
from fkge.node.frames import VERSIONS, Refused, decode_frame, plain, refusal
from fkge.node.peer import Peer
from fkge.node.settings import MODES, NodeConfig, PeerSettings
from fkge.node.transport import Line
from fkge.pki.site import Identity

CAPABILITIES = ("psi1", "tokens", "frame", "procrustes", "ppat", "ppat+refine")
_OWN = ("model", "width.entity", "width.relation")
"""Terms in which owners may differ."""

WIDEST = 1 << 16
"""The widest vector of a peer: how long its messages may be follows from the width that it announces."""

_NAME, _WIDTH = re.compile(r"[\w.+-]{1,64}", re.ASCII), re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
_FILES = {"seed": "node.toml", "rehearsal": "node.toml"}
_ID = 16
_MOST = 64  # of versions, capabilities and terms


def terms_of(settings: FederationSettings, seed: int, rehearsal: bool = False) -> dict[str, str]:
    """Return the terms by which this owner federates, which a peer must know and mostly share.

    Args:
        settings: of the owner; seed, rehearsal: of the node.
    """
    model = make_model(settings.shared_train)
    wide = widths(model)
    terms = {
        "seed": str(seed), "rehearsal": str(rehearsal).lower(),
        "start": settings.start, "translate": settings.translate, "share": settings.share,
        "neighbours": str(settings.neighbours).lower(), "aggregate": settings.aggregate, "moments": settings.moments,
        "privacy": settings.privacy.mode, "normalisation": settings.psi.normalisation,
        "model": settings.train.model, "width.entity": str(wide["entity"]), "width.relation": str(wide["relation"]),
    }  # fmt: skip
    if settings.translate.startswith("ppat"):
        terms["ppat"] = json.dumps(settings.ppat.model_dump(), sort_keys=True)
    return terms


def program() -> str:
    """Return the name and version of this program, for people."""
    return f"fkge {version('fkge')}"


def new_incarnation() -> bytes:
    """Draw an id for a process of a node."""
    return secrets.token_bytes(_ID)


def greeting(
    incarnation: bytes, consortium: str, owner: str, terms: Mapping[str, str], peer: Peer | None, **standing: Any
) -> pb.Hello:
    """Make a node's greeting to a peer.

    Args:
        incarnation, consortium, owner, terms: the id of the node's process, its consortium, its name, how it federates.
        peer: whom it greets; a session with it is offered for resumption. None for a probe.
        standing: the present alignment (`pact`), and whether the node has begun (`begun`); or `probe`.
    """
    session = None if peer is None else peer.session
    return pb.Hello(
        versions=VERSIONS, program=program(), consortium=consortium, owner=owner, capabilities=CAPABILITIES,
        life=incarnation, your_life=b"" if peer is None or session is None else peer.incarnation,
        heard=0 if session is None else session.received, nonce=secrets.token_bytes(_ID), clock=int(time.time() * 1000),
        terms=terms, **standing,
    )  # fmt: skip


async def read_greeting(line: Line) -> pb.Hello:
    """Read the other side's greeting, the first frame of a stream.

    Raises:
        Refused: it ends the stream instead, says why it does, or sends something else.
    """
    if (data := await line.read()) is None:
        raise Refused("unspecified", "closed the stream before a greeting", ours=False)
    frame = decode_frame(data)
    if frame.WhichOneof("is") == "bye":
        raise refusal(frame.bye)
    if frame.WhichOneof("is") != "hello":
        raise Refused("out_of_order", "another frame came where a greeting was due")
    return frame.hello


def _proof_of(nonce: bytes, dialler: str, listener: str, incarnation: bytes) -> bytes:
    """Return the bytes that the listening side signs."""
    return b"\0".join([b"fkge node 1", nonce, dialler.encode(), listener.encode(), incarnation])


def signed(hello: pb.Hello, identity: Identity, certificate: bytes, asked: pb.Hello) -> pb.Hello:
    """Add to the listening side's greeting a proof of who it is.

    Args:
        hello, asked: its greeting, and the dialler's.
        identity, certificate: of the listening side.
    """
    hello.certificate = certificate
    hello.proof = identity.sign(_proof_of(asked.nonce, asked.owner, identity.name, hello.life))
    return hello


def check_proof(hello: pb.Hello, identity: Identity, nonce: bytes, name: str, now: datetime) -> None:
    """Check that a greeting is from the current holder of `name`'s certificate.

    Args:
        hello, name: the greeting, and the owner that was dialled.
        identity, nonce: this side's, the nonce as it was sent; now: the time.

    Raises:
        Refused: it is not, or proves nothing.
    """
    if not hello.certificate or not hello.proof:
        raise Refused("unproven", f"{name} did not prove who it is")
    trusted(identity, hello.certificate, now, name)
    try:
        identity.trust.verify(hello.certificate, _proof_of(nonce, identity.name, name, hello.life), hello.proof)
    except IdentityError as error:
        raise _not_trusted(error) from None


def trusted(identity: Identity, certificate: bytes, now: datetime, name: str | None = None) -> str:
    """Return the owner that a certificate is for; raise `Refused` if it is not valid.

    Args:
        identity: this node's; certificate, now, name: see `Trust.check`.
    """
    try:
        return identity.trust.check(certificate, now, name)
    except IdentityError as error:
        raise _not_trusted(error) from None


def _not_trusted(error: IdentityError) -> Refused:
    """Translate why a certificate is not valid into a refusal."""
    reasons = {"expired": "expired", "early": "expired", "revoked": "revoked", "name": "name", "forged": "forged"}
    return Refused(reasons.get(error.reason, "stranger"), str(error))


def check_greeting(
    hello: pb.Hello,
    name: str,
    consortium: str,
    terms: Mapping[str, str],
    settings: PeerSettings,
    config: NodeConfig,
    now: datetime,
) -> None:
    """Check that this node can federate with the one that greets.

    Args:
        hello: its greeting.
        name: the owner that its certificate names.
        consortium, terms, config: this node's, and how it federates.
        settings: what the peer may have.
        now: the time.

    Raises:
        Refused: it cannot; the message says what to change.
    """
    about = f"{name} ({plain(hello.program) or 'an unknown program'})"
    if max(len(hello.versions), len(hello.capabilities), len(hello.terms)) > _MOST:
        raise Refused("malformed", f"the greeting of {name} has too many versions, capabilities or terms")
    if not set(hello.versions) & set(VERSIONS):
        theirs, ours = (", ".join(map(str, sorted(v))) or "none" for v in (hello.versions, VERSIONS))
        raise Refused(
            "version",
            f"{about} speaks version {theirs} of the protocol, this node ({program()}) {ours}; update the older",
        )
    if hello.owner != name:
        raise Refused("name", f"a node with {name}'s certificate says that it is {plain(hello.owner)!r}")
    if hello.consortium != consortium:
        raise Refused(
            "consortium", f"{about} is of the consortium {plain(hello.consortium)!r}, this node of {consortium}"
        )
    if len(hello.life) != _ID or len(hello.nonce) != _ID or len(hello.your_life) not in (0, _ID):
        raise Refused("malformed", f"the greeting of {about} is not whole")
    apart = abs(hello.clock / 1000 - now.timestamp())
    if apart > config.node.clock:
        raise Refused("clock", f"the clocks of {name} and of this node are {apart:,.0f} s apart; set them right")
    if not settings.open_at(now):
        raise Refused("hours", f"not now: the hours are {settings.hours} UTC")
    _check_terms(hello, about, terms)
    mode, epsilon = config.federation.privacy.mode, config.federation.privacy.epsilon
    if MODES.index(mode) < MODES.index(settings.privacy):
        raise Refused(
            "privacy", f"nothing is exchanged below privacy mode {settings.privacy!r}, and this run's is {mode!r}"
        )
    if mode == "dp" and settings.epsilon is not None and epsilon is not None and epsilon > settings.epsilon:
        raise Refused(
            "budget", f"the shared track may spend ε {epsilon:g}, more than the {settings.epsilon:g} allowed here"
        )


def _check_terms(hello: pb.Hello, about: str, terms: Mapping[str, str]) -> None:
    needed = ["psi1", terms["translate"], *(["tokens"] if terms["start"] == "together" else [])]
    missing = [what for what in needed if what not in hello.capabilities]
    if missing:
        raise Refused("terms", f"{about} cannot do {', '.join(missing)}; update it, or agree on something else")
    for key, value in terms.items():
        theirs = hello.terms.get(key)
        if key not in _OWN and theirs != value:
            where = _FILES.get(key, "federation.toml")
            raise Refused(
                "terms", f"{key} is {value} here and {plain(theirs or 'not given')} at {about}; agree on one ({where})"
            )
    if _NAME.fullmatch(hello.terms.get("model", "")) is None or not all(
        _WIDTH.fullmatch(hello.terms.get(key, "")) and int(hello.terms[key]) <= min(WIDEST, 16 * int(terms[key]))
        for key in _OWN[1:]
    ):
        raise Refused("terms", f"{about} does not give its model and widths, or has far wider vectors")

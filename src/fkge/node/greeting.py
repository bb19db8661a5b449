"""The first words of two nodes: who they are, what they speak, and whether they federate alike.

The side that called has shown its certificate in the TLS handshake. The side that was called has, too; but gRPC does
not tell the caller which one it was, and a revoked one would do. So it signs the caller's nonce, and sends its
certificate along: who holds a revoked key cannot sign for the new one.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version

from fkge.embed import make_model
from fkge.errors import IdentityError
from fkge.federation import FederationSettings
from fkge.federation.home import widths
from fkge.node import frames_pb2 as pb
from fkge.node.frames import VERSIONS, Refused, plain
from fkge.node.identity import Identity
from fkge.node.settings import MODES, PeerSettings

CAPABILITIES = ("psi1", "tokens", "frame", "procrustes", "ppat", "ppat+refine")
_OWN = ("model", "width.entity", "width.relation")
"""Terms in which owners may differ."""

WIDEST = 1 << 16
"""Numbers of a peer's vector at most: how long its messages may be follows from what it says."""

_NAME, _WIDTH = re.compile(r"[\w.+-]{1,64}", re.ASCII), re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)
_FILES = {"seed": "node.toml", "rehearsal": "node.toml"}
_LIFE = 16
_MOST = 64  # of versions, capabilities and terms


def terms_of(settings: FederationSettings, seed: int, rehearsal: bool = False) -> dict[str, str]:
    """What a peer must know of how this owner federates."""
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
    """This program, for people."""
    return f"fkge {version('fkge')}"


def new_life() -> bytes:
    """A name for a life."""
    return secrets.token_bytes(_LIFE)


def proof_of(nonce: bytes, caller: str, called: str, life: bytes) -> bytes:
    """What the called side signs."""
    return b"\0".join([b"fkge node 1", nonce, caller.encode(), called.encode(), life])


def signed(hello: pb.Hello, identity: Identity, certificate: bytes, asked: pb.Hello) -> pb.Hello:
    """The called side's greeting, with a proof of who it is."""
    hello.certificate = certificate
    hello.proof = identity.sign(proof_of(asked.nonce, asked.owner, identity.name, hello.life))
    return hello


def check_proof(hello: pb.Hello, identity: Identity, nonce: bytes, name: str, now: datetime) -> None:
    """Raise `Refused` unless the greeting is from the current holder of `name`'s certificate."""
    if not hello.certificate or not hello.proof:
        raise Refused("unproven", f"{name} did not prove who it is")
    try:
        identity.trust.check(hello.certificate, now, name)
        identity.trust.verify(hello.certificate, proof_of(nonce, identity.name, name, hello.life), hello.proof)
    except IdentityError as error:
        raise not_trusted(error) from None


def not_trusted(error: IdentityError) -> Refused:
    """A certificate that does not hold, as a reason to hang up."""
    reasons = {"expired": "expired", "early": "expired", "revoked": "revoked", "name": "name", "forged": "forged"}
    return Refused(reasons.get(error.reason, "stranger"), str(error))


def check_greeting(
    hello: pb.Hello,
    name: str,
    consortium: str,
    terms: Mapping[str, str],
    settings: PeerSettings,
    federation: FederationSettings,
    now: datetime,
    skew: float,
) -> None:
    """Raise `Refused`, with the way out, unless this node and the one that greets can deal with each other."""
    about = f"{name} ({plain(hello.program) or 'an unknown program'})"
    if max(len(hello.versions), len(hello.capabilities), len(hello.terms)) > _MOST:
        raise Refused("malformed", f"{name} says more about itself than anybody wants to know")
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
    if len(hello.life) != _LIFE or len(hello.nonce) != _LIFE or len(hello.your_life) not in (0, _LIFE):
        raise Refused("malformed", f"the greeting of {about} is not whole")
    apart = abs(hello.clock / 1000 - now.timestamp())
    if apart > skew:
        raise Refused("clock", f"the clocks of {name} and of this node are {apart:,.0f} s apart; set them right")
    if not settings.open_at(now):
        raise Refused("hours", f"not now: the hours are {settings.hours} UTC")
    _check_terms(hello, about, terms)
    mode = federation.privacy.mode
    if MODES.index(mode) < MODES.index(settings.privacy):
        raise Refused(
            "privacy", f"nothing is exchanged below privacy mode {settings.privacy!r}, and this run's is {mode!r}"
        )
    epsilon = federation.privacy.epsilon
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
                "terms", f"{key} is {value} here and {plain(theirs or 'not said')} at {about}; agree on one ({where})"
            )
    if _NAME.fullmatch(hello.terms.get("model", "")) is None or not all(
        _WIDTH.fullmatch(hello.terms.get(key, "")) and int(hello.terms[key]) <= min(WIDEST, 16 * int(terms[key]))
        for key in _OWN[1:]
    ):
        raise Refused("terms", f"{about} does not say what its vectors are like, or has far wider ones")

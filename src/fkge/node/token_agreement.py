"""Agreement of the initial members on one token for each common row, without a coordinator.

Each row has a token; partners send each other the tokens of their common rows, and each keeps the smaller one
(`fkge.align.tokens`). They do so in rounds: a round is over when every partner's tokens for it are here. Each message
also says for how many rounds nothing has changed, as far as its sender knows (`quiet`): the least of what its partners
said, plus one, or zero if one of its own tokens just changed. Once that number reaches the number of initial members,
which no path between two of them is longer than, nothing changes anywhere, and all that are connected know it in the
same round. Whoever has agreed says so (`settled`), with its final tokens, and with digests of those of its other rows:
so partners find what they share through third owners (`fkge.align.chains`).

A partner that restarts in the middle has forgotten the rounds, not its tokens: a new *generation* begins with round
zero, and each that receives a later generation follows. So it does when a partner comes late, or is gone. Tokens only
ever fall, so nothing that was merged is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import numpy as np

from fkge.align import Common, Tokens
from fkge.align.chains import Digests
from fkge.align.links import KINDS, Kind
from fkge.align.tokens import TokenArray
from fkge.node import frames_pb2 as pb
from fkge.node.frames import Refused

_LEAP = 1000  # generations that a partner can be ahead: one for each restart meanwhile
Others = Callable[[Tokens, str], Digests | None]
"""Digests for a partner of the rows that are not shared with it directly; None if it is shown none."""

_AHEAD = 2  # rounds that a partner can be ahead of this owner: it waits for this one's tokens in each


class TokenAgreement:
    """One member's side; `done` once nothing changes any more, anywhere.

    Args:
        tokens: its own; they change as others' arrive.
        commons: the rows that it shares with each partner.
        members: how many initial members there are, this one included; the same number everywhere.
        others: see `Others`.
    """

    def __init__(
        self, tokens: Tokens, commons: Mapping[str, Common], members: int, others: Others = lambda tokens, peer: None
    ) -> None:
        self.tokens = tokens
        self.done = not commons
        self._commons, self._members, self._others = dict(commons), members, others
        self._round = self._quiet = 0
        self._generation = 0
        self._received: dict[int, dict[str, pb.Tokens]] = {}
        self._settled: dict[str, pb.Tokens] = {}
        self._spoke: set[str] = set()

    @property
    def partners(self) -> set[str]:
        """The members whose tokens each round waits for."""
        return set(self._commons)

    @property
    def settled(self) -> Mapping[str, pb.Tokens]:
        """The messages of partners that had agreed."""
        return self._settled

    @property
    def silent(self) -> set[str]:
        """Partners that have sent nothing in this generation."""
        return self.partners - self._spoke - self._settled.keys()

    def messages(self) -> dict[str, pb.Tokens]:
        """Return the tokens to send to each partner in this round, or once it is done."""
        about = {"generation": self._generation, "round": self._round, "quiet": self._quiet}
        return {
            p: encode_tokens(
                self.tokens, common, self._others(self.tokens, p) if self.done else None, settled=self.done, **about
            )
            for p, common in self._commons.items()
        }

    def include(self, peer: str, common: Common) -> None:
        """Add a partner that has come, or has restarted, and begin a new generation."""
        self._commons[peer] = common
        self._settled.pop(peer, None)
        self._begin(self._generation + 1)

    def leave_out(self, peers: Set[str]) -> None:
        """Remove partners that are gone, and begin a new generation without them."""
        for peer in peers:
            self._commons.pop(peer, None)
            self._settled.pop(peer, None)
        self._begin(self._generation + 1)
        self.done = self._commons.keys() <= self._settled.keys()

    def receive(self, peer: str, tokens: pb.Tokens) -> list[dict[str, pb.Tokens]]:
        """Take in a partner's tokens.

        Returns:
            By partner the tokens to send now, one entry for each round that this has completed.

        Raises:
            Refused: they do not fit what the two share, or the round.
        """
        if peer not in self._commons:
            raise Refused("out_of_order", "tokens from an owner that shares nothing with this one")
        arrays = decode_tokens(self._commons[peer], tokens)
        if self.done:
            return []
        out: list[dict[str, pb.Tokens]] = []
        if tokens.generation > self._generation + _LEAP:
            raise Refused("malformed", f"tokens of generation {tokens.generation}, far beyond any that there can be")
        if tokens.settled and peer in self._settled:
            return []
        if tokens.settled:
            self._settled[peer] = tokens
            if self.tokens.adopt(self._commons[peer], arrays):
                self._quiet = 0
        elif tokens.generation >= self._generation:
            if tokens.generation > self._generation:
                self._begin(tokens.generation)
                out.append(self.messages())
            if not self._round <= tokens.round <= self._round + _AHEAD:
                raise Refused("out_of_order", f"tokens of round {tokens.round} where {self._round} is under way")
            self._received.setdefault(tokens.round, {})[peer] = tokens
            self._spoke.add(peer)
        while not self.done and self._complete():
            out.append(self.messages())
        return out

    def _begin(self, generation: int) -> None:
        self._generation, self._round, self._quiet = generation, 0, 0
        self._received.clear()
        self._spoke.clear()

    def _complete(self) -> bool:
        """End the round, if every partner's tokens are here; return whether they were."""
        received = self._received.get(self._round, {})
        if not self.partners <= received.keys() | self._settled.keys():
            return False
        changed = False
        for peer, tokens in received.items():
            changed |= self.tokens.merge(self._commons[peer], decode_tokens(self._commons[peer], tokens))
        least = min([tokens.quiet for peer, tokens in received.items() if peer not in self._settled] + [self._quiet])
        self._quiet = 0 if changed else least + 1
        self._received.pop(self._round, None)
        self._round += 1
        self.done = self._quiet >= self._members or self.partners <= self._settled.keys()
        return True


def encode_tokens(
    tokens: Tokens, common: Common, others: Digests | None = None, *, generation: int = 0, round: int = 0,
    quiet: int = 0, settled: bool = False,
) -> pb.Tokens:  # fmt: skip
    """Encode an owner's tokens of the rows it shares with a partner.

    Args:
        tokens: the owner's.
        common: its side of the alignment with the partner.
        others: digests of its other rows for the partner.
        generation, round, quiet, settled: see `TokenAgreement`.
    """
    data = {kind: array.astype("<u8").tobytes() for kind, array in tokens.of(common).items()}
    shown = {kind: array.astype("<u8").tobytes() for kind, array in (others or {}).items()}
    return pb.Tokens(
        entities=data["entity"], relations=data["relation"], generation=generation, round=round, quiet=quiet,
        settled=settled, other_entities=shown.get("entity", b""), other_relations=shown.get("relation", b""),
    )  # fmt: skip


def decode_others(tokens: pb.Tokens) -> Digests | None:
    """Decode the digests in a message; None if there are none.

    Raises:
        Refused: they are not whole.
    """
    data = (tokens.other_entities, tokens.other_relations)
    if not any(data):
        return None
    if any(len(part) % 8 for part in data):
        raise Refused("malformed", "digests of tokens that are not whole")
    return {kind: np.frombuffer(part, "<u8").astype(np.uint64) for kind, part in zip(KINDS, data, strict=True)}


def decode_tokens(common: Common, tokens: pb.Tokens) -> dict[Kind, TokenArray]:
    """Decode a partner's tokens of the common rows: by kind, (common rows,) uint64.

    Raises:
        Refused: there are more or fewer than common rows.
    """
    out: dict[Kind, TokenArray] = {}
    for kind, data in zip(KINDS, (tokens.entities, tokens.relations), strict=True):
        if len(data) != 8 * len(common.ids(kind)):
            raise Refused("malformed", f"{len(data):,} bytes of tokens for {len(common.ids(kind)):,} common rows")
        out[kind] = np.frombuffer(data, "<u8").astype(np.uint64)
    return out

"""Founders agree on where their common rows begin, without anybody in the middle.

Each row has a token; partners tell each other the tokens of their common rows, and each keeps the smaller one
(`fkge.align.tokens`). They do so in rounds: a round is over when every partner's word for it is there. Each word also
says for how many rounds nothing has changed, as far as its sender knows: the least of what its partners said, plus one,
or zero if one of its own tokens just changed. Once that number reaches the number of founders, which no way between two
of them is longer than, nothing changes anywhere, and everybody connected finds so in the same round.

A partner that starts anew in the middle has forgotten the rounds, not its tokens: a new *generation* begins with round
zero, and whoever hears of a later generation follows. So it does when one comes late, or is gone. Tokens only ever
fall, so nothing that was merged is wrong. A partner that has settled already says so, with what it settled on.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

import numpy as np

from fkge.align import Common, Tokens
from fkge.align.links import KINDS, Kind
from fkge.align.tokens import TokenArray
from fkge.node import frames_pb2 as pb
from fkge.node.frames import Refused

_LEAP = 1000  # generations that a partner can be ahead: as often as somebody started anew meanwhile
_AHEAD = 2  # rounds that a partner can be ahead of this owner: it waits for this one's word in each


class Settling:
    """One founder's side.

    Args:
        tokens: its own; they change as others are heard.
        commons: what it shares with each partner.
        founders: how many there are, this one included; the same number everywhere.

    Attributes:
        done: nothing changes any more, anywhere.
    """

    def __init__(self, tokens: Tokens, commons: Mapping[str, Common], founders: int) -> None:
        self.tokens = tokens
        self.done = not commons
        self._commons, self._founders = dict(commons), founders
        self._round = self._quiet = 0
        self._generation = 0
        self._words: dict[int, dict[str, pb.Tokens]] = {}
        self._settled: dict[str, pb.Tokens] = {}
        self._spoke: set[str] = set()

    @property
    def partners(self) -> set[str]:
        """Whose words this waits for, in every round."""
        return set(self._commons)

    @property
    def silent(self) -> set[str]:
        """Partners that have said nothing in this generation."""
        return self.partners - self._spoke - self._settled.keys()

    def words(self) -> dict[str, pb.Tokens]:
        """What to tell each partner in this round, or once it is done."""
        return {peer: self.word(peer) for peer in self._commons}

    def word(self, peer: str) -> pb.Tokens:
        """What to tell one partner."""
        return spoken(
            self.tokens, self._commons[peer], generation=self._generation, round=self._round, quiet=self._quiet,
            settled=self.done,
        )  # fmt: skip

    def include(self, peer: str, common: Common) -> None:
        """A partner has come, or come back and forgotten the rounds: begin a new generation."""
        self._commons[peer] = common
        self._settled.pop(peer, None)
        self._begin(self._generation + 1)

    def leave_out(self, peers: Set[str]) -> None:
        """Partners are gone: begin a new generation without them."""
        for peer in peers:
            self._commons.pop(peer, None)
            self._settled.pop(peer, None)
        self._begin(self._generation + 1)
        self.done = self._commons.keys() <= self._settled.keys()

    def hear(self, peer: str, word: pb.Tokens) -> list[dict[str, pb.Tokens]]:
        """Take in a partner's word. What to tell every partner now, one round after the other.

        `Refused` if it does not fit what the two share.
        """
        if peer not in self._commons:
            raise Refused("out_of_order", "tokens from an owner that shares nothing with this one")
        arrays = listened(self._commons[peer], word)
        if self.done:
            return []
        news: list[dict[str, pb.Tokens]] = []
        if word.generation > self._generation + _LEAP:
            raise Refused("malformed", f"tokens of generation {word.generation}, far beyond any that there can be")
        if word.settled and peer in self._settled:
            return []
        if word.settled:
            self._settled[peer] = word
            if self.tokens.adopt(self._commons[peer], arrays):
                self._quiet = 0
        elif word.generation >= self._generation:
            if word.generation > self._generation:
                self._begin(word.generation)
                news.append(self.words())
            if not self._round <= word.round <= self._round + _AHEAD:
                raise Refused("out_of_order", f"tokens of round {word.round} where {self._round} is under way")
            self._words.setdefault(word.round, {})[peer] = word
            self._spoke.add(peer)
        while not self.done and self._complete():
            news.append(self.words())
        return news

    def _begin(self, generation: int) -> None:
        self._generation, self._round, self._quiet = generation, 0, 0
        self._words.clear()
        self._spoke.clear()

    def _complete(self) -> bool:
        """End the round, if every partner's word is there."""
        words = self._words.get(self._round, {})
        if not set(self._commons) <= set(words) | set(self._settled):
            return False
        changed = False
        for peer, word in words.items():
            changed |= self.tokens.merge(self._commons[peer], listened(self._commons[peer], word))
        least = min([word.quiet for peer, word in words.items() if peer not in self._settled] + [self._quiet])
        self._quiet = 0 if changed else least + 1
        self._words.pop(self._round, None)
        self._round += 1
        self.done = self._quiet >= self._founders or set(self._commons) <= set(self._settled)
        return True


def spoken(tokens: Tokens, common: Common, **about: Any) -> pb.Tokens:
    """An owner's tokens of the rows it shares with a partner, as a message."""
    of = tokens.of(common)
    return pb.Tokens(entities=_bytes(of["entity"]), relations=_bytes(of["relation"]), **about)


def listened(common: Common, word: pb.Tokens) -> dict[Kind, TokenArray]:
    """A partner's tokens of the common rows."""
    out: dict[Kind, TokenArray] = {}
    for kind, data in zip(KINDS, (word.entities, word.relations), strict=True):
        if len(data) != 8 * len(common.ids(kind)):
            raise Refused("malformed", f"{len(data):,} bytes of tokens for {len(common.ids(kind)):,} common rows")
        out[kind] = np.frombuffer(data, "<u8").astype(np.uint64)
    return out


def _bytes(tokens: TokenArray) -> bytes:
    return tokens.astype("<u8").tobytes()

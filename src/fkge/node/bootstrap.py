"""Bootstrap: the initial members of a federation wait for each other, once, and agree on their common initial rows.

A member waits until all others have come. One that is away must not delay the rest for good: when none has come for
`patience` seconds, those that are here begin without it. They must be more than half of all initial members, or one of
them must be about to begin already, with more than half of them behind it. So two groups that cannot reach each other
never both begin: their rows would start apart, and nobody would notice.

A member that comes later finds that the others have begun, waits for no more, and adopts the tokens they agreed on: a
member that has begun sends them to each that has not. Owners that are no initial members (`founder = false`) have no
part in any of this. What two members share only through third ones is found when both have begun.

Known weakness: rows that late members share with each other, and not with those that have begun, may start apart if one
of them shares them with a third that has begun: an agreement stands, and reaches them through that one only. Training
brings them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Set

from fkge.align import Common, Tokens
from fkge.align.chains import Digests
from fkge.node import frames_pb2 as pb
from fkge.node.events import AlignmentMessage, Emit, Event, Misbehaved, Notice
from fkge.node.frames import Refused
from fkge.node.token_agreement import Others, TokenAgreement, decode_others, encode_tokens

_OTHERS = 5.0  # seconds for other members to come, once one has come that has begun

Rows = Callable[[Collection[str]], tuple[Tokens, Mapping[str, Common]]]
"""The owner's tokens, as drawn or as agreed on, and the rows that it shares with those of some peers that share any."""


class AgreementStarted(Event):
    """No more members are waited for: the rounds begin."""


class TokensAgreed(Event):
    """The initial members have agreed; the node must save this before it handles any later event."""

    tokens: Tokens


class OthersShown(Event):
    """A member that has agreed sent digests of the rows that it shares with others, for what both share through them.

    It follows `TokensAgreed`, in this process or an earlier one.
    """

    peer: str
    digests: Digests


class BootstrapTimeout(Event):
    """A timer of the bootstrap is over. `late`: the one for members that come after one that has begun."""

    late: bool


class Bootstrap:
    """One initial member's part in the bootstrap, before and after it has begun.

    Args:
        members: the others.
        present: all peers that are connected and aligned; a view that changes.
        patience: seconds without another member coming, after which it begins with those that are here.
        rows: looks up tokens and shared rows.
        emit: called with the events above and with messages, in the order in which they have to take effect.
        after: puts an event in so many seconds, and returns its timer.
        begun: whether the node has agreed with the others in an earlier process.
        others: makes the digests that a partner is shown.
    """

    def __init__(
        self,
        members: Iterable[str],
        present: Set[str],
        patience: float,
        rows: Rows,
        emit: Emit,
        after: Callable[[float, Event], asyncio.TimerHandle],
        begun: bool = False,
        others: Others = lambda tokens, peer: None,
    ) -> None:
        self._members, self._present, self._patience = set(members), present, patience
        self._rows, self._emit, self._after = rows, emit, after
        self._others, self._begun, self._closed = others, begun, False
        self._agreement: TokenAgreement | None = None
        self._ahead: set[str] = set()  # members that have begun
        self._seen: set[str] = set()  # members that have come at all
        self._early: dict[str, pb.Tokens] = {}  # tokens that came before this node could use them
        self._informed: set[str] = set()  # members that know what this one has agreed on
        self._timer: asyncio.TimerHandle | None = None
        self._tired = False  # nobody has come for `patience` seconds
        self._silent: set[str] = set()

    def check(self) -> None:
        """Start to agree, if nobody has to be waited for."""
        if not self._begun and self._agreement is None:
            here = self._members & self._present
            late = self._tired and bool(here) and (self._enough(here) or not here.isdisjoint(self._early))
            if self._members <= self._present or late:
                self._agree()

    def add(self, peer: str, begun: bool, fresh: bool = True) -> None:
        """Take in a peer that is aligned.

        Args:
            peer: its name.
            begun: it has agreed already.
            fresh: the alignment was made now.
        """
        self._informed.discard(peer)
        if peer not in self._members:
            return
        if self._begun:
            if not begun or fresh:
                self._inform(peer)
            if (early := self._early.pop(peer, None)) is not None:
                self.receive(peer, early)
            return
        if peer not in self._seen:
            self._seen.add(peer)
            self._wait()
        if begun:
            self._await_others(peer)
        if self._agreement is None:
            self.check()
        elif common := self._rows([peer])[1]:
            self._agreement.include(peer, common[peer])
            self._send_round([peer])

    def receive(self, peer: str, tokens: pb.Tokens) -> None:
        """Take in a peer's tokens.

        Raises:
            Refused: they do not fit what the two share, or the round.
        """
        if peer not in self._members:
            return
        decode_others(tokens)  # what cannot be decoded is refused here, while its sender is known
        if self._begun:
            if tokens.settled and peer not in self._present:
                self._early[peer] = tokens  # it has finished the alignment that this side is finishing
            elif tokens.settled:
                self._show(peer, tokens)
            elif peer not in self._informed:
                self._inform(peer)
        elif self._agreement is not None and peer in self._present:
            # Settled tokens of a member that shares nothing with this one say no more than that it has begun.
            if peer in self._agreement.partners or not tokens.settled:
                self._send(self._agreement.receive(peer, tokens))
                self._check_done()
        else:
            before = self._early.get(peer)
            if before is None or tokens.settled or (not before.settled and tokens.generation >= before.generation):
                self._early[peer] = tokens
            if tokens.settled:
                self._await_others(peer)
            self.check()

    def remove(self, peer: str) -> None:
        """Forget what a peer has sent, as its session is over; its next process will send it again."""
        self._early.pop(peer, None)
        self._ahead.discard(peer)
        self._informed.discard(peer)

    def change(self, members: Iterable[str]) -> None:
        """Replace the other members: `peers.toml` has changed."""
        self._members = set(members)
        if self._agreement is None:
            self.check()
        elif not self._begun:
            self._leave_out(self._agreement.partners - self._members)

    def timeout(self, event: BootstrapTimeout) -> None:
        """Handle a timer that is over."""
        if self._begun or self._closed:
            return
        if event.late:
            if self._ahead & self._present:
                self._agree()
        elif self._agreement is None:
            self._tired = True
            self.check()
        else:
            # A partner that is here and silent may be waiting itself, and begins soon; or it never sends anything.
            # So only those that were silent at the last timeout, too, count as missing.
            silent, self._silent = self._agreement.silent & self._silent, self._agreement.silent
            missing = silent | (self._agreement.partners - self._present)
            if self._enough(self._members & self._present - missing):
                self._report(missing)
                self._leave_out(missing)
            if not self._begun:
                self._wait()

    def close(self) -> None:
        """Cancel the timer, and begin no more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # -- waiting -------------------------------------------------------------------------------------

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._tired = self._after(self._patience, BootstrapTimeout(late=False)), False

    def _enough(self, others: Set[str]) -> bool:
        """Return whether `others`, with this one, are more than half of all initial members."""
        return 2 * (len(others) + 1) > len(self._members) + 1

    def _await_others(self, peer: str) -> None:
        """Give the others a moment to come, since a member has begun, and then adopt what they agreed on."""
        self._ahead.add(peer)
        self._after(_OTHERS, BootstrapTimeout(late=True))

    def _report(self, missing: Iterable[str]) -> None:
        """Write down that this node begins without members that have not come, or have gone."""
        for peer in sorted(missing):
            self._emit(Notice({"peer": peer}, log="founder missing", audit="founder missing", level="warning"))

    # -- agreeing ------------------------------------------------------------------------------------

    def _agree(self) -> None:
        """Start the rounds with the members that are here."""
        if self._agreement is not None or self._begun or self._closed:
            return
        self._report(self._members - self._present)
        self._wait()
        self._emit(AgreementStarted())
        # No path between two members is longer than there are members, whichever of them have come.
        rows = self._rows(self._members & self._present)
        self._agreement = TokenAgreement(*rows, len(self._members) + 1, self._others)
        self._send_round(sorted(self._present))

    def _send_round(self, replay: Iterable[str] = ()) -> None:
        """Send the tokens of a round that begins, and take in those of `replay` that came before."""
        assert self._agreement is not None
        self._send([self._agreement.messages()])
        for peer in replay:
            if (tokens := self._early.pop(peer, None)) is not None:
                try:
                    self.receive(peer, tokens)
                except Refused as error:
                    self._emit(Misbehaved(peer, error.reason, str(error)))
        self._check_done()

    def _leave_out(self, peers: Set[str]) -> None:
        assert self._agreement is not None
        if peers:
            self._agreement.leave_out(peers)
            self._send_round()

    def _send(self, rounds: list[dict[str, pb.Tokens]]) -> None:
        """Send the tokens of each round; a member that is not here gets the current ones when it comes."""
        for messages in rounds:
            for peer, tokens in messages.items():
                if peer in self._present:
                    self._emit_tokens(peer, tokens)

    def _emit_tokens(self, peer: str, tokens: pb.Tokens) -> None:
        self._emit(AlignmentMessage(peer, pb.Meeting(tokens=tokens), "Tokens"))

    def _inform(self, peer: str) -> None:
        """Send a member what was agreed on; one that shares nothing with this one learns that the others have begun."""
        self._informed.add(peer)
        tokens, commons = self._rows([peer])
        if self._agreement is not None:  # the event that saves them may be on its way
            tokens = self._agreement.tokens
        known = pb.Tokens(settled=True)
        if peer in commons:
            known = encode_tokens(tokens, commons[peer], self._others(tokens, peer), settled=True)
        self._emit_tokens(peer, known)

    def _show(self, peer: str, tokens: pb.Tokens) -> None:
        """Pass on the digests in what a member sent that has agreed, if there are any."""
        if (digests := decode_others(tokens)) is not None:
            self._emit(OthersShown(peer, digests))

    def _check_done(self) -> None:
        assert self._agreement is not None
        if self._agreement.done and not self._begun:
            self._begun = True
            self.close()
            self._emit(TokensAgreed(self._agreement.tokens))
            for peer, tokens in self._agreement.settled.items():
                self._show(peer, tokens)
            for peer in sorted(self._members & self._present - self._agreement.partners):
                self._inform(peer)

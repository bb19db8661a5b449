"""One founder's words, and what it makes of the others'. How all of them end is the matter of test_founding."""

from __future__ import annotations

import numpy as np
import pytest

from fkge.align import Common, Tokens
from fkge.align.links import KINDS
from fkge.node import frames_pb2 as pb
from fkge.node.frames import Refused
from fkge.node.token_agreement import TokenAgreement, decode_tokens, encode_tokens

ROWS = {"entity": 6, "relation": 3}


def ids(*numbers: int) -> Common:
    return Common(np.array(numbers), np.array([], np.int64))


def test_words_that_do_not_fit_are_refused_and_change_nothing() -> None:
    tokens = Tokens.draw(ROWS, 1)
    settling = TokenAgreement(tokens, {"b": ids(0, 1)}, 2)
    before = tokens["entity"].tolist()
    word = encode_tokens(Tokens({k: np.zeros(n, np.uint64) for k, n in ROWS.items()}), ids(2, 3), round=0)
    for peer, wrong, reason in (
        ("c", word, "out_of_order"),
        ("b", pb.Tokens(entities=bytes(15)), "malformed"),
        ("b", pb.Tokens(entities=bytes(16), relations=b"x"), "malformed"),
        ("b", pb.Tokens(entities=bytes(16), round=9), "out_of_order"),
    ):
        with pytest.raises(Refused) as refused:
            settling.receive(peer, wrong)
        assert refused.value.reason == reason
    assert tokens["entity"].tolist() == before
    assert settling.receive("b", word)
    assert tokens["entity"].tolist() != before


def test_tokens_pass_the_wire_as_they_are() -> None:
    tokens, common = Tokens.draw(ROWS, 7), Common(np.array([4, 0]), np.array([2]))
    heard = decode_tokens(common, pb.Tokens.FromString(encode_tokens(tokens, common, round=3).SerializeToString()))
    assert heard["entity"].tolist() == tokens["entity"][[4, 0]].tolist()
    assert heard["relation"].tolist() == tokens["relation"][[2]].tolist()


def test_who_begins_anew_takes_over_what_the_others_have_settled_on() -> None:
    """Also where its own tokens, drawn anew, are the smaller ones: the others have begun with theirs."""
    both = Common(np.array([0, 2]), np.array([0]))
    settled, fresh = Tokens.draw({"entity": 3, "relation": 1}, 1), Tokens.draw({"entity": 3, "relation": 1}, 2)
    one = TokenAgreement(fresh, {"bee": both}, 2)
    assert one.receive("bee", encode_tokens(settled, both, settled=True)) != []
    assert one.done
    for kind in KINDS:
        assert (one.tokens[kind][both.ids(kind)] == settled[kind][both.ids(kind)]).all()
    assert one.tokens["entity"][1] == Tokens.draw({"entity": 3, "relation": 1}, 2)["entity"][1]


def test_a_partner_that_has_lost_what_it_settled_on_is_waited_for_again() -> None:
    one = TokenAgreement(Tokens.draw(ROWS, 1), {"bee": ids(0), "cat": ids(1)}, 2)
    one.receive("bee", encode_tokens(Tokens.draw(ROWS, 2), ids(0), settled=True))
    one.include("bee", ids(2))
    one.receive("cat", encode_tokens(Tokens.draw(ROWS, 3), ids(1), settled=True))
    assert not one.done
    smallest = Tokens({kind: np.zeros(rows, np.uint64) for kind, rows in ROWS.items()})
    one.receive("bee", encode_tokens(smallest, ids(2), generation=1, round=0))
    assert one.tokens["entity"][2] == 0


def test_who_is_left_out_is_not_waited_for() -> None:
    one = TokenAgreement(Tokens.draw(ROWS, 1), {"bee": ids(0), "cat": ids(1)}, 2)
    one.receive("bee", encode_tokens(Tokens.draw(ROWS, 2), ids(0), settled=True))
    one.leave_out({"cat"})
    assert (one.done, one.partners) == (True, {"bee"})
    assert one.messages()["bee"].settled

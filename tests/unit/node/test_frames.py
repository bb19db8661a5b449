"""Frames that cannot be read are refused by name, and a peer's words cannot play tricks on a screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fkge.node import frames_pb2 as pb
from fkge.node.frames import FRAME_LIMIT, PART, Refused, bye, decode_frame, decode_meeting, plain, refusal

WHOLE = pb.Frame(part=pb.Part(step=7, heard=3, channel=2, more=True, body=b"body")).SerializeToString()


@pytest.mark.parametrize("decode", [decode_frame, decode_meeting])
@pytest.mark.parametrize("data", [b"", b"\xff", b"\x0a\x05ab", b"\x9a\x06\x00"], ids=["none", "noise", "cut", "other"])
def test_what_is_no_frame(decode: object, data: bytes) -> None:
    with pytest.raises(Refused) as refused:
        decode(data)  # type: ignore[operator]
    assert (refused.value.reason, refused.value.ours) == ("malformed", True)


def test_text_that_is_none() -> None:
    data = pb.Frame(bye=pb.Bye(sentence="ab")).SerializeToString().replace(b"ab", b"\xff\xfe")
    with pytest.raises(Refused, match="none of this protocol"):
        decode_frame(data)


@given(st.integers(0, len(WHOLE) - 1))
def test_a_frame_cut_short_is_refused_or_another_but_never_the_whole(length: int) -> None:
    try:
        assert decode_frame(WHOLE[:length]).SerializeToString() != WHOLE
    except Refused as refused:
        assert refused.reason == "malformed"  # noqa: PT017


def test_the_longest_part_fits_a_frame_and_more_does_not() -> None:
    most = pb.Part(step=2**64 - 1, heard=2**64 - 1, channel=2**32 - 1, more=True, body=bytes(PART))
    assert decode_frame(pb.Frame(part=most).SerializeToString()).part == most
    with pytest.raises(Refused) as refused:
        decode_frame(bytes(FRAME_LIMIT + 1))
    assert refused.value.reason == "too_large"


def test_a_last_word_says_why() -> None:
    heard = refusal(decode_frame(bye("terms", "no " * 1000)).bye)
    assert (heard.reason, heard.ours, len(str(heard))) == ("terms", False, 500)


@pytest.mark.parametrize("reason", [999, -1, 2**31 - 1])
def test_reasons_of_a_later_version_are_taken_as_none(reason: int) -> None:
    assert refusal(pb.Bye(reason=reason)).reason == "unspecified"


def test_a_peers_words_do_not_reach_the_screen_as_they_are() -> None:
    assert str(refusal(pb.Bye(sentence="a\x1b[2Jb\nc\u202ed"))) == "a?[2Jb?c?d"
    assert plain("x" * 99) == "x" * 80

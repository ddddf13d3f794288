"""Reported as abetlen/llama-cpp-python#57, #372; kherud/java-llama.cpp#3."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from inference.detokenizer import Detokenizer, text_of_pieces

ZWJ_EMOJI = "👩‍👩‍👧‍👦"


def stream(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer()
    return [detokenizer.append(piece) for piece in pieces]


def test_an_emoji_in_single_bytes_appears_with_its_last_byte_and_never_as_a_replacement_character() -> None:
    data = (ZWJ_EMOJI * 20).encode()
    shown = stream([bytes([byte]) for byte in data])
    assert "".join(shown) == ZWJ_EMOJI * 20
    assert not any("\ufffd" in text for text in shown)
    complete = [len(data[: end + 1].decode(errors="ignore")) for end in range(len(data))]
    assert [len("".join(shown[: end + 1])) for end in range(len(data))] == complete


def test_a_character_split_two_to_one_is_held_back_until_it_is_whole() -> None:
    first, second = "歪".encode()[:2], "歪".encode()[2:]
    assert stream([b"a" + first, second + b"b"]) == ["a", "歪b"]


def test_bytes_that_are_no_utf8_become_replacement_characters_at_once() -> None:
    assert stream([b"\xff", b"x"]) == ["\ufffd", "x"]


def test_an_incomplete_character_at_the_end_is_not_shown() -> None:
    assert text_of_pieces([b"ok ", "é".encode()[:1]]) == "ok "


@given(st.text(), st.lists(st.integers(0, 400)))
def test_any_cut_of_any_text_joins_to_the_text(text: str, cuts: list[int]) -> None:
    data = text.encode("utf-8", "replace")
    borders = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    pieces = [data[start:end] for start, end in itertools.pairwise(borders)]
    shown = stream(pieces)
    assert "".join(shown) == data.decode() == text_of_pieces(pieces)

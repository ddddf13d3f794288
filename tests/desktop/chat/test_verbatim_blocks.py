"""What a person typed is shown exactly, in pieces that can be laid out one by one."""

from hypothesis import given
from hypothesis import strategies as st

from desktop.chat.verbatim_blocks import verbatim_blocks


def joined(text: str) -> str:
    blocks = verbatim_blocks(text)
    return "".join((block.joiner if i else "") + block.text for i, block in enumerate(blocks))


def test_markdown_is_left_as_it_was_typed() -> None:
    text = "# no heading\n    indented\n* star\n\n\n<b>**x**</b> &lt;"
    assert [(block.kind, block.text) for block in verbatim_blocks(text)] == [("verbatim", text)]


def test_a_fence_becomes_code_with_its_exact_characters() -> None:
    blocks = verbatim_blocks("Why?\n\n```py\nx\t= 1  \n\n```\nThanks")
    assert [(b.kind, b.text, b.language) for b in blocks] == [
        ("verbatim", "Why?", ""),
        ("code", "x\t= 1  \n", "py"),
        ("verbatim", "Thanks", ""),
    ]


@given(st.text(alphabet="ab \n", max_size=60).map(lambda s: s * 200))
def test_no_character_is_lost_or_added_when_long_text_is_cut(text: str) -> None:
    assert joined(text) == text.strip("\n")


def test_pieces_are_small_even_without_line_ends() -> None:
    blocks = verbatim_blocks("x" * 1_000_000)
    assert max(len(block.text) for block in blocks) <= 4000
    assert sum(len(block.text) for block in blocks) == 1_000_000


def test_an_empty_message_has_no_blocks() -> None:
    assert verbatim_blocks("\n\n") == []

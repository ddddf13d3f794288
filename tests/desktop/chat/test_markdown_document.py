"""Streamed markdown ends as the same blocks that the whole text gives, at a cost that grows with its length."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from desktop.chat.markdown_blocks import BlockBuilder, MarkdownBlock, parse_tokens, with_references
from desktop.chat.markdown_document import MarkdownDocument

FRAGMENTS = [
    *[
        "- ",
        "* ",
        "+ ",
        "1. ",
        "3) ",
        "10. ",
        "   - ",
        "> ",
        "    ",
        "  ",
        "\t",
        " ",
        "-",
        "---",
        "===",
        "# ",
        "## h",
    ],
    *["```", "````py", "~~~", "\n", "\n", "\n", "\n\n", "\r\n", "\r", "|", "|-|", "-|-", "a | b\n-|-\n1|2\n"],
    *["a", "b c", "x", "**b**", "`c`", "<b>", "&lt;", "\\", "[x]", "[x]: /u", "[x]: http://a", "[ ] ", '"t"'],
    *["![i](http://x)", "[l](http://y)", "\0", "é", "漢字", "👩‍👩‍👧"],
]


def one_shot(text: str) -> list[MarkdownBlock]:
    """One parse of everything, without the document under test."""
    tokens, references = parse_tokens(text, {})
    return with_references(BlockBuilder().build(tokens), references)


def normalised(text: str) -> str:
    return text.removesuffix("\r").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


def streamed(text: str, piece: int = 1) -> MarkdownDocument:
    """Fed in pieces, looked at after each."""
    document = MarkdownDocument()
    for start in range(0, len(text), piece):
        document.append(text[start : start + piece])
        document.blocks()
    return document


markdown = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)


@settings(max_examples=400, deadline=None)
@given(markdown)
@example("```a | b\n-|-\n1|2\n")
@example("- a\n   - b\n   - c | d\n-|-\n")
@example("a | b\n-|-\n1|2\n   - x\n   -  y\n   - [ ] z")
@example('[x] first\n\n[x]: http://a\n"t\nu"\n\nlast [x]')
@example("```\na\n   ")
def test_text_fed_in_single_characters_gives_the_blocks_of_the_whole_text(text: str) -> None:
    assert streamed(text).blocks() == one_shot(normalised(text))


@settings(max_examples=150, deadline=None)
@given(markdown, st.integers(1, 9))
def test_the_size_of_the_pieces_makes_no_difference(text: str, piece: int) -> None:
    assert streamed(text, piece).blocks() == MarkdownDocument(text).blocks()


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ("1. step\n\n   ```sh\n   a\t b  \n   ```\n2. next", ["a\t b  "]),
        ("````md\n```py\nx = 1\n```\n````\n", ["```py\nx = 1\n```"]),
        ("```\n```\n", [""]),
        ("```py\nx\n```\n", ["x"]),
        ("- a\n      - deep\n", []),
        ("text\n\n      1. one\n      2. two\n", []),
        ("    x = 1\n\n    y\n", ["x = 1\n\ny"]),
        ("before\n\n```c\nif (a < b && c > d) &lt;\n\ttab  \n\n", ["if (a < b && c > d) &lt;\n\ttab  \n"]),
        ("~~~\n```\n~~~ \nafter", ["```"]),
    ],
)
def test_code_keeps_its_exact_characters_whole_and_streamed(text: str, codes: list[str]) -> None:
    for blocks in (one_shot(text), streamed(text).blocks()):
        assert [block.text for block in blocks if block.kind == "code"] == codes


def test_a_paragraph_too_long_for_prose_is_shown_as_it_is_in_pieces() -> None:
    text = "2024-01-01 **INFO** a line of a log\n" * 1_000
    blocks = streamed(text, piece=997).blocks()
    assert {block.kind for block in blocks} == {"verbatim"}
    assert max(len(block.text) for block in blocks) <= 4_000
    joined = "".join((block.joiner if i else "") + block.text for i, block in enumerate(blocks))
    assert joined == text.removesuffix("\n")


@pytest.mark.parametrize("opener", ["> ", "- ", "1. ", "> - "])
def test_text_nested_absurdly_deep_is_still_shown(opener: str) -> None:
    for text in (opener * 500 + "here", "\n".join("  " * i + opener + "here" for i in range(200))):
        assert "here" in one_shot(text)[-1].text


def test_a_list_indented_by_six_spaces_does_not_become_code() -> None:
    blocks = streamed("- a\n\n      - b\n      - c\n").blocks()
    assert [(block.kind, block.text, len(block.containers)) for block in blocks] == [
        ("text", "a", 1),
        ("text", "b", 2),
        ("text", "c", 2),
    ]


def test_items_are_numbered_on_when_the_list_is_read_piece_by_piece() -> None:
    blocks = streamed("7. a\n1. b\n\n1. c\n\npara\n\n1. d\n").blocks()
    assert [block.copy_prefix for block in blocks] == ["7. ", "8. ", "9. ", "", "1. "]


def test_a_definition_at_the_end_makes_earlier_text_a_link() -> None:
    document = MarkdownDocument("see [docs]\n\nmore\n\nlast\n\n")
    before = document.blocks()
    document.append("[docs]: https://example.org\n")
    after = document.blocks()
    assert before[0].references == {}
    assert after[0].references["DOCS"]["href"] == "https://example.org"
    assert after[1] is before[1]


def test_settled_blocks_stay_the_same_objects() -> None:
    document = MarkdownDocument("# a\n\n- b\n- c\n\nd\n")
    before = document.blocks()
    document.append("e\n\nf\n")
    after = document.blocks()
    assert [new is old for new, old in zip(after, before[:3], strict=False)] == [True] * 3


def reply(paragraphs: int) -> str:
    """A reply with everything in it, about 700 characters a paragraph."""
    parts = []
    for i in range(paragraphs):
        parts.append(f"## Part {i}\n\n" + "Words that say **something** about `code`. " * 6)
        parts.append("1. first item of the list\n2. second item, somewhat longer\n   - nested\n")
        parts.append("```python\n" + "for x in range(10):\n    print(x)\n" * 3 + "```")
        parts.append("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |")
    return "\n\n".join(parts)


def parsed_while_streaming(text: str) -> int:
    # Four characters a token, seven tokens a paint: 200 tokens/s at 30 paints/s.
    return streamed(text, piece=28).parsed_characters


def test_streaming_twenty_thousand_tokens_parses_each_character_a_bounded_number_of_times() -> None:
    text = reply(170)
    assert len(text) > 80_000
    assert parsed_while_streaming(text) <= 20 * len(text)


def test_twice_the_text_costs_twice_the_parsing() -> None:
    assert parsed_while_streaming(reply(40)) <= 2.1 * parsed_while_streaming(reply(20))


@pytest.mark.parametrize(
    "text",
    ["```\n" + "x = 'a line of code'\n" * 2_000, "- an item of a long list\n" * 2_000],
    ids=["fence", "list"],
)
def test_one_very_long_block_costs_no_more(text: str) -> None:
    assert parsed_while_streaming(text) <= 8 * len(text)

"""Code that streams in ends in the colours of the whole, without being coloured anew at each step."""

from desktop.chat.code_highlight import CodeHighlighter

SOURCE = '''def greet(name: str) -> str:
    """Says
    hello."""
    return f"hello {name}"  # done

class Greeter:
    count = 0x1f
'''


def spans_of(highlighter: CodeHighlighter, lines: list[str]) -> list[list[tuple[int, int, str]]]:
    return [list(highlighter.spans(i)) for i in range(len(lines))]


def whole(language: str, source: str) -> list[list[tuple[int, int, str]]]:
    highlighter, lines = CodeHighlighter(language), source.split("\n")
    highlighter.update(lines, len(source), complete=True)
    return spans_of(highlighter, lines)


def test_keywords_strings_and_comments_have_their_colours() -> None:
    first, second, *_ = whole("python", SOURCE)
    assert (0, 3, "code_keyword") in first
    assert (4, 5, "code_function") in first
    assert all(colour == "code_string" for _, _, colour in second)


def test_streamed_code_ends_in_the_colours_of_the_whole() -> None:
    source = SOURCE * 20
    highlighter = CodeHighlighter("python")
    for end in range(0, len(source), 37):
        highlighter.update(source[:end].split("\n"), end, complete=False)
    lines = source.split("\n")
    highlighter.update(lines, len(source), complete=True)
    assert spans_of(highlighter, lines) == whole("python", source)


def test_the_newest_line_is_coloured_while_the_code_is_incomplete() -> None:
    source = SOURCE * 20 + "\nimport os"
    highlighter = CodeHighlighter("python")
    for end in range(0, len(source) + 1, 5):
        highlighter.update(source[:end].split("\n"), end, complete=False)
    lines = source.split("\n")
    highlighter.update(lines, len(source), complete=False)
    assert (0, 6, "code_keyword") in highlighter.spans(len(lines) - 1)


def test_an_unknown_language_stays_plain() -> None:
    assert whole("no-such-language", "if x") == [[]]


def test_very_long_code_stays_plain() -> None:
    assert whole("python", "if x\n" * 20_000)[0] == []

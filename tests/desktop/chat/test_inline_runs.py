"""Inline markdown becomes formatted runs; what is no safe link or markup stays as it was written."""

import pytest

from desktop.chat.inline_runs import InlineRun, inline_runs, plain_text


def test_emphasis_code_and_strikethrough_are_runs() -> None:
    assert inline_runs("a **b *c*** `d` ~~e~~", {}) == [
        InlineRun("a "),
        InlineRun("b ", bold=True),
        InlineRun("c", bold=True, italic=True),
        InlineRun(" "),
        InlineRun("d", code=True),
        InlineRun(" "),
        InlineRun("e", strike=True),
    ]


@pytest.mark.parametrize("url", ["https://example.org/a?b=c", "http://example.org", "mailto:a@example.org"])
def test_web_and_mail_links_are_active(url: str) -> None:
    assert inline_runs(f"[x]({url})", {}) == [InlineRun("x", url=url)]


@pytest.mark.parametrize(
    "source",
    [
        "<img src=x onerror=alert(1)>",
        "<b>hi</b>",
        "a<b && c>d",
        "vector<int>",
        "&lt; &amp;lt;",
        "[x](file:///etc/passwd)",
        "[x](javascript:alert(1))",
        "[x](JaVaScRiPt:alert(1))",
        "[x](data:text/html,hi)",
        "<javascript:alert(1)>",
        "[x](relative.html)",
        "![](http://127.0.0.1:1/p.png)",
        "![alt](http://127.0.0.1:1/p.png 'title')",
        "![alt][none]",
        "https://example.org is not linked by itself",
    ],
)
def test_everything_else_stays_as_it_was_written(source: str) -> None:
    assert plain_text(source, {}) == source
    assert set(inline_runs(source, {})) == {InlineRun(run.text) for run in inline_runs(source, {})}


def test_an_image_between_words_is_text_and_its_label_is_no_link() -> None:
    source = "a ![b [c](http://d)](http://e) f"
    assert plain_text(source, {}) == source
    assert {run.url for run in inline_runs(source, {})} == {""}


def test_single_line_ends_are_kept() -> None:
    assert plain_text("roses are red\nviolets are blue", {}) == "roses are red\nviolets are blue"


def test_a_reference_uses_its_definition() -> None:
    references = {"X": {"href": "https://example.org", "title": ""}}
    assert inline_runs("[x]", references) == [InlineRun("x", url="https://example.org")]

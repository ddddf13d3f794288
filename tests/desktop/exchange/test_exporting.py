"""Markdown and HTML that people read, and files that are there as a whole or not at all."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from desktop.conversations.whole_chats import TreeMessage, WholeChat
from desktop.exchange import ExchangeError, ExportChoice, ExportFormat, export_chats, suggested_name
from desktop.exchange.html_export import html_of, html_of_markdown
from desktop.exchange.markdown_export import closed_fences, markdown_of
from tests.desktop.exchange.imports import FIXTURES, export_all, import_into, new_store


def message(role: str, content: str, parent: int | None = None, **columns: Any) -> TreeMessage:
    return TreeMessage(parent, {"role": role, "content": content, "status": "complete", **columns})


def chat(*messages: TreeMessage, title: str = "A chat", head: int | None = None) -> WholeChat:
    columns = {"title": title, "created_at": 1_718_000_000_000_000, "updated_at": 1_718_000_000_000_000}
    return WholeChat(columns, messages, len(messages) - 1 if head is None else head)


SKY = chat(
    message("user", "Why blue?"),
    message("assistant", "An old answer", 0),
    message(
        "assistant",
        "Rayleigh.",
        0,
        reasoning="Light </details> scatters",
        reasoning_s=2.0,
        model_path="/m/Qwen.gguf",
    ),
    title="Sky",
)


def test_markdown_says_who_said_what_on_the_branch_that_is_shown() -> None:
    text = markdown_of(SKY, with_reasoning=True)
    assert text.startswith("# Sky\n\n*2024-06-1")
    assert text.endswith(
        "## You\n\nWhy blue?\n\n## Qwen\n\n<details>\n<summary>Thought for 2.0 s</summary>\n\n"
        "Light &lt;/details> scatters\n\n</details>\n\nRayleigh.\n"
    )
    assert "old answer" not in text
    assert "scatters" not in markdown_of(SKY, with_reasoning=False)


def test_a_fence_stays_what_it_is_and_one_that_nothing_closes_ends_with_its_message() -> None:
    nested = "````md\n```py\nx\n```\n````"
    assert closed_fences(nested) == nested
    stopped = message("assistant", "~~~~c\n```\nint x;", 0, status="cancelled")
    text = markdown_of(
        chat(message("user", "Code"), stopped, message("user", "Go on", 1)), with_reasoning=True
    )
    assert "## Assistant\n\n~~~~c\n```\nint x;\n~~~~\n\n*Stopped.*\n\n## You\n\nGo on\n" in text


@settings(max_examples=60, deadline=None)
@given(st.text("`~ \nax>-", max_size=60))
def test_no_message_swallows_the_next_heading(content: str) -> None:
    text = markdown_of(chat(message("user", content), message("assistant", "END", 0)), with_reasoning=True)
    headings = [
        token for token in MarkdownIt().parse(text) if token.type == "heading_open" and token.level == 0
    ]
    assert len(headings) >= 3


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


ALLOWED = frozenset(
    [
        "article",
        "section",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "p",
        "div",
        "pre",
        "code",
        "span",
        "strong",
        "em",
        "s",
        "a",
        "ul",
        "ol",
        "li",
        "blockquote",
        "hr",
        "br",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "details",
        "summary",
    ]
)


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                "<script>alert(1)</script>",
                "<img src=x onerror=alert(1)>",
                "![a](https://example.org/a.png)",
                "[a](javascript:alert(1))",
                '[b](https://example.org/?a="><script>)',
                "```html\n<b>\n```\n",
                "`<i>`",
                "</section>",
                "&lt;",
                "\n\n",
                "| a | <u> |\n| - | - |\n",
                "- [x] done\n",
                "<https://example.org>",
                "[r]: javascript:x\n",
                '```"><script>\nx\n```\n',
            ]
        )
        | st.text(max_size=10),
        max_size=6,
    ).map("".join)
)
def test_html_holds_no_tag_of_the_chat_and_fetches_nothing(content: str) -> None:
    exported = chat(
        message("user", content), message("assistant", content, 0, reasoning=content), title=content
    )
    for tag, attributes in Tags(html_of(exported, 1, with_reasoning=True)).found:
        assert tag in ALLOWED
        assert set(attributes) <= {"id", "class", "dir", "href", "rel", "title", "style", "start"}
        assert re.fullmatch(r"text-align:(left|right|center)", attributes.get("style") or "text-align:left")
        assert re.match(r"(https?|mailto):", attributes.get("href") or "https:", re.IGNORECASE)


def test_html_shows_markdown_as_the_transcript_does() -> None:
    html = html_of_markdown(
        "- [x] *done*\n\n| a |\n| - |\n| <b> |\n\n```python\nx = 'a'\n```\n\nOne\ntwo &amp; ![i](u)"
    )
    assert "<li>☑ <em>done</em></li>" in html
    assert "<td>&lt;b&gt;</td>" in html
    assert '<span class="code_string">&#x27;a&#x27;</span>' in html
    assert "<p>One<br />\ntwo &amp;amp; ![i](u)</p>" in html


def test_an_html_file_stands_by_itself(tmp_path: Path) -> None:
    store = new_store()
    import_into(store, FIXTURES)
    text = export_all(store, tmp_path / "all.html", ExportFormat.HTML).read_text(encoding="utf-8")
    tags = Tags(text)
    assert not {"script", "img", "link", "iframe", "object", "form"} & {tag for tag, _ in tags.found}
    assert "default-src 'none'" in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"url\(|@import|\$", re.search(r"<style>.*?</style>", text, re.DOTALL)[0])  # type: ignore[index]
    contents = [attributes["href"] for tag, attributes in tags.found if tag == "a"][
        : len(store.conversations())
    ]
    articles = {f"#{attributes['id']}" for tag, attributes in tags.found if tag == "article"}
    assert set(contents) == articles


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "chats.md"
    target.write_text("before")

    def chats():  # type: ignore[no-untyped-def]
        yield SKY
        raise OSError(28, "No space left on device")

    with pytest.raises(ExchangeError, match=r"chats.md could not be written \(No space left on device\)"):
        export_chats(chats(), ["Sky"], target, ExportChoice(ExportFormat.MARKDOWN))
    assert export_chats([SKY], ["Sky"], target, ExportChoice(ExportFormat.HTML), lambda: True) is None
    assert (target.read_text(), list(tmp_path.iterdir())) == ("before", [target])
    with pytest.raises(ExchangeError, match="could not be written"):
        export_chats([SKY], ["Sky"], tmp_path / "gone" / "chats.md", ExportChoice(ExportFormat.JSON))


def test_only_its_owner_can_read_an_export(tmp_path: Path) -> None:
    target = tmp_path / "chats.json"
    assert export_chats([SKY, SKY], [], target, ExportChoice(ExportFormat.JSON)) == 2
    assert target.stat().st_mode & 0o077 == 0


def test_names_of_files() -> None:
    assert suggested_name("What is 1/2? <b>", ExportFormat.MARKDOWN) == "What is 1 2 b.md"
    assert suggested_name("../..", ExportFormat.JSON) == "chat.json"
    assert suggested_name("天気" * 50, ExportFormat.HTML) == "天気" * 30 + ".html"

"""Files that are damaged, huge, or made to do harm: told with a reason, and nothing else happens."""

from __future__ import annotations

import json
import os
import resource
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from desktop.exchange import ImportReport, chat_reading, json_values, sources
from tests.desktop.exchange.imports import FIXTURES, import_into, new_store, said, write_json

ALL_FIXTURES = sorted(path for path in FIXTURES.rglob("*") if path.is_file())


def import_bytes(data: bytes, name: str = "chats.json") -> ImportReport:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        store = new_store()
        report = import_into(store, path)
        assert store.integrity_check() == []
        assert len(store.conversations()) == report.num_imported
        assert report.is_success == (report.num_imported > 0)
        assert "fault of Everwarm" not in report.text()
        store.close()
        return report


many = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@many
@given(st.binary(max_size=300))
@example(b"\xff\xfe[\x00")
@example(b"\xef\xbb\xbf[]")
@example(b"PK\x03\x04 no ZIP after all")
@example(b'{"a":')
@example(b"[1e999, NaN, -Infinity]")
@example(b'["\\ud800"]')
def test_any_bytes_are_told_from_chats(data: bytes) -> None:
    import_bytes(data)


@many
@given(st.data())
def test_a_chat_file_that_is_damaged_anywhere(data: st.DataObject) -> None:
    source = bytearray(data.draw(st.sampled_from(ALL_FIXTURES)).read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(source) - 1))
        piece = data.draw(st.sampled_from([b"", b"\x00", b"\xff", b"[", b"}", b'"', b"\\", b"null,", b"{}"]))
        source[at : at + data.draw(st.integers(0, 3))] = piece
    import_bytes(bytes(source))


# Words that importers look for, so that what is drawn gets past the first question.
WORDS = sorted(
    {
        word
        for path in ALL_FIXTURES
        for line in path.read_text(encoding="utf-8").splitlines()
        for word in line.split('"')
        if 0 < len(word) < 30
    }
)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
)


@st.composite
def swapped(draw: st.DrawFn) -> Any:
    """A fixture, values of which are replaced by others of any kind."""
    path = draw(st.sampled_from(ALL_FIXTURES))
    lines = path.read_text(encoding="utf-8")
    value = json.loads(lines) if path.suffix == ".json" else [json.loads(line) for line in lines.splitlines()]
    random = draw(st.randoms(use_true_random=False))

    def swap(value: Any, chance: float) -> Any:
        if random.random() < chance:
            others = (
                None,
                True,
                0,
                -1,
                1e300,
                float("nan"),
                "",
                "text",
                [],
                {},
                [[]],
                [{}],
                {"": None},
                ["x"],
                2**70,
                10**400,
            )
            return random.choice(others)
        if isinstance(value, dict):
            return {key: swap(inner, chance) for key, inner in value.items()}
        if isinstance(value, list):
            return [swap(inner, chance) for inner in value]
        return value

    return swap(value, random.choice((0.02, 0.1, 0.3)))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    swapped()
    | st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
        ),
        max_leaves=12,
    )
)
def test_values_of_the_wrong_kind_anywhere(value: Any) -> None:
    import_bytes(json.dumps(value).encode())


@pytest.mark.parametrize("bracket", [b"[", b'{"a":', b'[{"mapping":', b'{"messages":[[', b'[["'])
def test_deep_nesting(bracket: bytes) -> None:
    assert not import_bytes(bracket * 200_000).is_success


def test_a_chat_that_is_nested_too_deeply_does_not_keep_the_others_out() -> None:
    deep = b'{"title": "Deep", "mapping": ' + b"[" * 5000 + b"]" * 5000 + b"}"
    fine = b'{"messages": [{"role": "user", "content": "Still here"}]}'
    report = import_bytes(b"[" + deep + b"," + fine + b"]")
    assert report.num_imported == 1
    assert "nested too deeply" in report.text()


def test_a_chat_that_is_too_large_does_not_keep_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_VALUE_BYTES", 1_000_000)
    words = ["many words in pieces"] * 150_000
    chats = [
        {"messages": [{"role": "user", "content": words}]},
        {"messages": [{"role": "user", "content": "Hi"}]},
    ]
    report = import_bytes(json.dumps(chats).encode())
    assert report.num_imported == 1
    assert "it is larger than 1 MB" in report.text()


def test_a_text_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_VALUE_BYTES", 1_000_000)
    report = import_bytes(b'[{"mapping": "' + b"a" * 5_000_000)
    assert "a single text of more than 1 MB" in report.text()
    assert "ends too early" in import_bytes(b'[{"mapping": "abc').text()


def test_so_many_values_that_they_would_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_values, "MAX_COMMAS", 1000)
    report = import_bytes(b'[{"mapping": {}, "x": [' + b"[]," * 2000 + b"[]]}]")
    assert "more than 1,000 values" in report.text()


def test_a_list_of_anything_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_reading, "_MAX_STRANGE", 50)
    report = import_bytes(b"[" + b"1," * 100_000 + b"1]")
    assert "50 entries of it are no chats" in report.text()
    assert len(report.entries) == 1
    chat = b'{"messages": [{"role": "user", "content": "Hi"}]}'
    report = import_bytes(b"[" + chat + b",1" * 100 + b"," + chat + b"]")
    assert (report.num_imported, report.num_skipped, report.num_cut) == (1, 50, 1)
    assert "50 entries of it are no chats" in report.text()


def test_unreadable_bytes_and_nul_are_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "chats.json"
    path.write_bytes(
        b'[{"role": "user", "content": "caf\xe9 \\u0000 \\ud83d"}, {"role": "user", "content": "a\x00b"}]'
    )
    store = new_store()
    report = import_into(store, path)
    assert report.num_imported == 1
    [(_, text)] = said(store, store.conversations()[0].title)
    assert text == "caf\ufffd \ufffd \ufffd"
    assert "not imported: 1 unreadable character (shown as \ufffd)" in report.text()
    assert "its JSON is damaged (Invalid control character" in report.text()


def test_a_zip_bomb_is_counted_while_it_comes_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_UNPACKED_BYTES", 3_000_000)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", b"[" + b" " * 20_000_000)
        archive.writestr("b.json", b"[" + b" " * 20_000_000)
    assert path.stat().st_size < 100_000
    report = import_into(new_store(), path)
    assert not report.is_success
    assert "a.json: the ZIP holds more than" in report.text()


@pytest.mark.parametrize("at", range(0, 400, 29))
def test_a_damaged_zip(tmp_path: Path, at: int) -> None:
    path = tmp_path / "damaged.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(FIXTURES / "openai-list.json", "a.json")
        archive.writestr("inner.zip", b"PK\x03\x04")
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0xFF
    import_bytes(bytes(data), "damaged.zip")
    import_bytes(bytes(data[:at]), "damaged.zip")


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "out.json").symlink_to(FIXTURES / "openai-list.json")
    os.mkfifo(folder / "pipe.json")
    report = import_into(new_store(), tmp_path / "pipe.json", folder, Path("/dev/null"))
    assert not report.is_success
    assert "pipe.json: it is no file" in report.text()


def test_parent_links_that_go_in_circles(tmp_path: Path) -> None:
    node = {"parentId": "a", "role": "user", "content": "?"}
    chat = {
        "chat": {
            "title": "Ring",
            "history": {
                "messages": {"a": node, "b": {**node, "parentId": "c"}, "c": {**node, "parentId": "b"}}
            },
        }
    }
    report = import_into(new_store(), write_json(tmp_path / "ring.json", [chat]))
    assert "Ring (ring.json): its messages' parent links go in a circle" in report.text()


def test_a_very_long_branch(tmp_path: Path) -> None:
    mapping = {
        str(i): {"parent": str(i - 1), "message": {"author": {"role": "user"}, "content": {"parts": ["x"]}}}
        for i in range(20_000)
    }
    report = import_into(
        new_store(), write_json(tmp_path / "long.json", [{"title": "Long", "mapping": mapping}])
    )
    assert report.num_messages == 20_000


def test_memory_is_that_of_one_chat(tmp_path: Path) -> None:
    """60 MB of chats of 1 MB each."""
    text = "word " * 200_000
    path = tmp_path / "many.json"
    with path.open("w") as file:
        file.write("[")
        for i in range(60):
            file.write(
                ("," if i else "")
                + json.dumps({"title": f"{i}", "messages": [{"role": "user", "content": text}]})
            )
        file.write("]")
    num_read = 0
    source = next(iter(sources.sources(path)))
    assert isinstance(source, sources.Source)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in chat_reading.read_chats(source, None):  # type: ignore[arg-type]
        num_read += 1
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert num_read == 60
    assert grown_kb < 30_000
